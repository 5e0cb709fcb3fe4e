//! All tests of the index as one program.
