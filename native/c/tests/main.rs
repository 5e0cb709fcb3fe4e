//! The header is that of the sources, and a C program that uses it is on record.

mod header;
