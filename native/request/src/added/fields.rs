//! What an application sets of its request: texts that stand in the line under their own names, and attributes.

use super::Members;
use queue::record::{Map, Scratch, Tag, Value, Values};

/// Members of a request's record, and the attributes that its application has set.
#[derive(Clone, Debug, Default)]
pub struct AddedFields {
    pub members: Members,
    attributes: Vec<u8>,
}

/// Tag and count of a map.
const MAP_HEAD_BYTES: usize = 5;

impl AddedFields {
    /// Fields that no application has set.
    #[must_use]
    pub const fn of(members: Members) -> Self {
        Self { members, attributes: Vec::new() }
    }

    /// The attributes as a value of a record, a map; empty if there are none.
    #[inline]
    #[must_use]
    pub fn attributes(&self) -> &[u8] {
        &self.attributes
    }

    /// The number of attributes.
    fn count(&self) -> usize {
        self.attributes
            .get(1..MAP_HEAD_BYTES)
            .map_or(0, |count| count.try_into().map_or(0, |count| u32::from_le_bytes(count) as usize))
    }

    /// The number of attributes after [`Self::put`].
    #[inline]
    #[must_use]
    pub fn count_with(&self, count: usize, encoded: &[u8]) -> usize {
        if self.attributes.is_empty() { count } else { self.count_of_both(count, encoded) }
    }

    #[cold]
    fn count_of_both(&self, count: usize, encoded: &[u8]) -> usize {
        let mut others = Self::default();
        others.put(count, encoded);
        self.count() + entries(&others.attributes).filter(|(name, _)| !self.has(name)).count()
    }

    /// Whether there is an attribute of this name.
    fn has(&self, name: &[u8]) -> bool {
        entries(&self.attributes).any(|(known, _)| known == name)
    }

    /// Adds `count` attributes, encoded as the entries of a map; they replace those of their names.
    #[inline]
    pub fn put(&mut self, count: usize, encoded: &[u8]) {
        if count == 0 {
            return;
        }
        if !self.attributes.is_empty() {
            return self.replace(count, encoded);
        }
        let mut head = [0; MAP_HEAD_BYTES];
        head[0] = Tag::Map as u8;
        head[1..].copy_from_slice(&(count as u32).to_le_bytes());
        self.attributes.reserve_exact(MAP_HEAD_BYTES + encoded.len());
        self.attributes.extend_from_slice(&head);
        self.attributes.extend_from_slice(encoded);
    }

    #[cold]
    fn replace(&mut self, count: usize, encoded: &[u8]) {
        let mut fresh = Self::default();
        fresh.put(count, encoded);
        let before = std::mem::take(&mut self.attributes);
        let kept = entries(&before).filter(|(name, _)| !fresh.has(name)).count();
        let mut map = Scratch::new();
        map.push_map_begin((kept + count) as u32);
        for (name, value) in entries(&before) {
            let value = entries(&fresh.attributes).find(|(other, _)| *other == name).map_or(value, |(_, value)| value);
            push(&mut map, name, value);
        }
        for (name, value) in entries(&fresh.attributes) {
            if !entries(&before).any(|(other, _)| other == name) {
                push(&mut map, name, value);
            }
        }
        self.attributes = map.as_slice().to_vec();
    }

    /// Adds what was set before, except where it has the names of these fields.
    pub fn put_behind(&mut self, earlier: &Self) {
        self.members.add_all(earlier.members.as_bytes());
        if !earlier.attributes.is_empty() {
            let mut all = Self { members: Members::default(), attributes: earlier.attributes.clone() };
            let count = self.count();
            all.put(count, self.attributes.get(MAP_HEAD_BYTES..).unwrap_or_default());
            self.attributes = all.attributes;
        }
    }
}

fn entries(map: &[u8]) -> impl Iterator<Item = (&[u8], Value<'_>)> {
    let map = match Values::new(map).next() {
        Some(Ok(Value::Map(map))) => Some(map),
        _ => None,
    };
    map.into_iter().flat_map(|map: Map<'_>| map.iter())
}

/// Appends an entry of one of the kinds that an application sets.
fn push(map: &mut Scratch, name: &[u8], value: Value<'_>) {
    map.push_map_key(std::str::from_utf8(name).unwrap_or_default());
    match value {
        Value::Str(text) => map.push_str(std::str::from_utf8(text).unwrap_or_default()),
        Value::Int(number) => map.push_int(number),
        Value::Uint(number) => map.push_uint(number),
        Value::Float(number) => map.push_float(number),
        Value::Bool(is_set) => map.push_bool(is_set),
        _ => map.push_null(),
    }
}
