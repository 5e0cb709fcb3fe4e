//! extract
use crate::record::Body;
pub fn push_facts(_out: &mut Vec<u8>, _body: &Body<'_>) {}
