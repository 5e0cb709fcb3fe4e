//! The end of a plain request, which is what most requests are: it was answered whole, nothing failed, nobody asked for
//! more than usual, and its slot holds all of its texts. It has a record, or the sampler leaves it out.
//!
//! The record says what [`Observer::finish`] would say, as a test compares. Its values are named, and the compiler compares
//! the names with the record's fields. It is written by a tenth of that code, and asks the interpreter for nothing: a server's own work displaces the logging's code and data from the processor's caches
//! between two requests, so each line of them costs a miss.

use super::{Observer, ObserverSettings};
use crate::fields::{Added, Attributes, FieldInfo, GenAi, Group, HttpRecord, MembersValue, Stream};
use crate::ids::RequestIds;
use crate::in_flight::InFlight;
use crate::in_flight::facts::{Texts, members_of};
use crate::in_flight::terminal::seconds;
use crate::outcome::Outcome;
use crate::sampler::SampledBy;
use queue::event::{ADJUSTED_COUNT, INFO, REQUEST};
use queue::producer::Producer;
use queue::record::{Scratch, Tag};
use ring::slots::Slot;

/// Values that stand together: of these names, or of a whole group.
enum Part {
    Named(&'static [&'static str]),
    Group(&'static [FieldInfo]),
}

impl Part {
    const fn len(&self) -> usize {
        match self {
            Self::Named(names) => names.len(),
            Self::Group(fields) => fields.len(),
        }
    }

    const fn name(&self, at: usize) -> &'static [u8] {
        match self {
            Self::Named(names) => names[at].as_bytes(),
            Self::Group(fields) => fields[at].name.as_bytes(),
        }
    }
}

/// Whether the parts have exactly the fields of the groups, in their order.
const fn are_fields(parts: &[Part], groups: &[&[FieldInfo]]) -> bool {
    let (mut part, mut value, mut group, mut field) = (0, 0, 0, 0);
    loop {
        while part < parts.len() && value == parts[part].len() {
            (part, value) = (part + 1, 0);
        }
        while group < groups.len() && field == groups[group].len() {
            (group, field) = (group + 1, 0);
        }
        if part == parts.len() || group == groups.len() {
            return part == parts.len() && group == groups.len();
        }
        if !are_equal(parts[part].name(value), groups[group][field].name.as_bytes()) {
            return false;
        }
        (value, field) = (value + 1, field + 1);
    }
}

const fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Appends values in one call, each under its field's name; the names are then a [`Part`].
macro_rules! named {
    ($part:ident: $to:ident.$push:ident { $($name:expr => $tag:ident($value:expr),)+ }) => {
        const $part: Part = Part::Named(&[$($name),+]);
        $to.$push(&[$((Tag::$tag, $value)),+]);
    };
}

impl Observer {
    /// Ends a request whose application has returned, if it is a plain one: emits its terminal record unless the sampler
    /// leaves it out. Returns whether the request is finished; if not, nothing has changed.
    #[inline]
    pub fn finish_plain(
        &mut self,
        ids: &RequestIds,
        now: u64,
        producer: &Producer,
        settings: &ObserverSettings,
    ) -> bool {
        if self.finished {
            return true;
        }
        let Some(slot) = self.in_flight.as_ref().and_then(InFlight::slot) else { return false };
        let Some(texts) = Texts::of(slot).filter(|_| self.is_plain()) else { return false };
        let is_slow = self.completed.saturating_sub(self.started) >= settings.sampler.slow_nano();
        if is_slow && !self.head.kept {
            return false;
        }
        self.finished = true;
        if self.added.is_some() {
            self.own_all_members(settings);
        }
        let Some(ending) = self.in_flight.take().and_then(InFlight::end) else { return true };
        if !self.head.kept {
            if let Some(queue) = producer.queue() {
                queue.file.header().count_sampled_out(self.head.left_out_by);
            }
            return true;
        }
        let mut scratch = Scratch::new();
        self.push_plain(&mut scratch, ids, &texts, now, is_slow, settings);
        if self.added.is_some() {
            self.push_added(&mut scratch, producer);
        } else if self.members_in_slot || self.adds_of_body {
            self.push_members(&mut scratch, &slot, producer, settings);
        }
        ending.record(producer, now, REQUEST, INFO, scratch.as_slice());
        true
    }

    /// Appends the members of the slot, and those that the body adds.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn push_members(&self, to: &mut Scratch, slot: &Slot<'_>, producer: &Producer, settings: &ObserverSettings) {
        let record_bytes = producer.max_record_bytes();
        let members = if self.members_in_slot { members_of(slot) } else { b"" };
        let more = if self.adds_of_body { settings.recorded.of_bodies().as_bytes() } else { b"" };
        let members = MembersValue { members, more, record_bytes };
        Added { members, attributes: Attributes { map: b"", record_bytes } }.push(to);
    }

    #[inline(never)]
    fn push_added(&self, to: &mut Scratch, producer: &Producer) {
        const _: () = assert!(are_fields(&[Part::Group(Added::FIELDS)], &[HttpRecord::LAST_GROUPS[0]]));
        if let Some(added) = Self::added(self.added.as_deref(), producer) {
            added.push(to);
        }
    }

    /// Whether the request is a plain one. Everything else about it is noted as `unusual` when it is seen.
    #[inline]
    fn is_plain(&self) -> bool {
        let is_ok = (100..500).contains(&self.status) && self.status != 408;
        is_ok && !self.unusual && self.is_complete()
    }

    #[inline]
    fn push_plain(
        &mut self,
        to: &mut Scratch,
        ids: &RequestIds,
        texts: &Texts<'_>,
        now: u64,
        is_slow: bool,
        settings: &ObserverSettings,
    ) {
        let duration_nano = self.completed.saturating_sub(self.started);
        const TRACE: Part = Part::Named(&["trace"]);
        to.push_trace(&ids.trace);
        named!(TEXTS: to.push_texts {
            "request_id" => Bytes(&ids.request_id()),
            "client_request_id" => Bytes(ids.client().unwrap_or_default()),
            "outcome" => Str(Outcome::Ok.name().as_bytes()),
            "error.type" => Str(b""),
            "http.request.method" => Str(texts.method),
            "url.path" => Bytes(texts.path),
            "http.route" => Str(texts.route),
            "network.protocol.version" => Str(texts.protocol_version),
            "client.address" => Str(texts.client_address),
        });
        named!(NUMBERS: to.push_numbers {
            "http.response.status_code" => Uint(u64::from(self.status)),
            "http.request.body.size" => Uint(self.bytes_in),
            "http.response.body.size" => Uint(self.bytes_out),
            "duration_s" => Float(seconds(duration_nano).to_bits()),
            "after_response_s" => Float(seconds(now.saturating_sub(self.completed)).to_bits()),
        });
        const ABSENT: Part = Part::Named(&["after_response_outcome", "after_response_error_type"]);
        if self.streamed || self.has_facts || self.request_body.is_some() || self.response_body.is_some() {
            to.push_absents(ABSENT.len());
            self.push_stream_and_bodies(to, texts.path, settings);
        } else {
            to.push_absents(ABSENT.len() + Stream::FIELDS.len() + GenAi::FIELDS.len());
        }
        named!(SAMPLED_BY: to.push_texts {
            "sampled_by" => Str(SampledBy::Head.name().as_bytes()),
        });
        // A slow request is kept for certain, so it stands for itself alone.
        named!(COUNT: to.push_numbers {
            ADJUSTED_COUNT => Float(if is_slow { 1.0_f64 } else { self.head.adjusted_count }.to_bits()),
        });
        const PARTS: &[Part] = &[
            TRACE,
            TEXTS,
            NUMBERS,
            ABSENT,
            Part::Group(Stream::FIELDS),
            Part::Group(GenAi::FIELDS),
            SAMPLED_BY,
            COUNT,
        ];
        const _: () = assert!(are_fields(PARTS, HttpRecord::GROUPS), "the values are not those of the record's fields");
    }

    #[inline(never)]
    fn push_stream_and_bodies(&mut self, to: &mut Scratch, path: &[u8], settings: &ObserverSettings) {
        let (stream, gen_ai) = self.stream_and_bodies(path, "", settings);
        stream.push(to);
        gen_ai.push(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn field(name: &'static str) -> FieldInfo {
        FieldInfo { name, column: "", meaning: "", has_few_values: false }
    }

    #[test]
    fn values_are_those_of_the_fields_only_if_each_name_stands_at_its_place() {
        const GROUPS: &[&[FieldInfo]] = &[&[field("a"), field("b")], &[], &[field("c")]];
        let is_row = |parts: &[Part]| are_fields(parts, GROUPS);
        assert!(is_row(&[Part::Named(&["a", "b", "c"])]));
        assert!(is_row(&[Part::Named(&["a"]), Part::Named(&["b"]), Part::Group(GROUPS[2])]));
        for other in
            [&["a", "b"][..], &["a", "b", "c", "d"], &["b", "a", "c"], &["a", "b", "cc"], &["a", "x", "b", "c"]]
        {
            assert!(!is_row(&[Part::Named(Box::leak(other.to_vec().into()))]), "{other:?}");
        }
        assert!(!is_row(&[Part::Group(GROUPS[0])]));
        assert!(!is_row(&[Part::Group(GROUPS[2]), Part::Group(GROUPS[0])]));
    }
}
