//! The end of a plain request, which is what most requests are: it was answered whole, nothing failed, nobody asked for
//! more than usual, and its slot holds all of its texts. It has a record, or the sampler leaves it out.
//!
//! The record says what [`Observer::finish`] would say, as a test compares. It is written by a tenth of that code, and asks
//! the interpreter for nothing: a server's own work displaces the logging's code and data from the processor's caches
//! between two requests, so each line of them costs a miss.

use super::{Observer, ObserverSettings};
use crate::fields::{AfterResponse, Field, GenAi, Group, MembersValue, Stream};
use crate::ids::RequestIds;
use crate::in_flight::InFlight;
use crate::in_flight::facts::{Texts, members_of};
use crate::in_flight::terminal::seconds;
use crate::outcome::Outcome;
use crate::sampler::SampledBy;
use queue::event::REQUEST;
use queue::producer::Producer;
use queue::record::{Scratch, Tag};
use queue::severity::INFO;
use ring::slots::Slot;

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
        MembersValue { members, more, record_bytes }.push(to);
        to.push_absent();
    }

    #[inline(never)]
    fn push_added(&self, to: &mut Scratch, producer: &Producer) {
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
        to.push_trace(&ids.trace);
        to.push_texts(&[
            (Tag::Bytes, &ids.request_id()),
            (Tag::Bytes, ids.client().unwrap_or_default()),
            (Tag::Str, Outcome::Ok.name().as_bytes()),
            (Tag::Str, b""),
            (Tag::Str, texts.method),
            (Tag::Bytes, texts.path),
            (Tag::Str, texts.route),
            (Tag::Str, texts.protocol_version),
            (Tag::Str, texts.client_address),
        ]);
        to.push_numbers(&[
            (Tag::Uint, u64::from(self.status)),
            (Tag::Uint, self.bytes_in),
            (Tag::Uint, self.bytes_out),
            (Tag::Float, seconds(duration_nano).to_bits()),
            (Tag::Float, seconds(now.saturating_sub(self.completed)).to_bits()),
        ]);
        const AFTER: usize = AfterResponse::FIELDS.len() - 1;
        if self.streamed || self.has_facts || self.request_body.is_some() || self.response_body.is_some() {
            to.push_absents(AFTER);
            self.push_stream_and_bodies(to, texts.path, settings);
        } else {
            to.push_absents(AFTER + Stream::FIELDS.len() + GenAi::FIELDS.len());
        }
        to.push_texts(&[(Tag::Str, SampledBy::Head.name().as_bytes())]);
        // A slow request is kept for certain, so it stands for itself alone.
        to.push_numbers(&[(Tag::Float, if is_slow { 1.0_f64 } else { self.head.adjusted_count }.to_bits())]);
    }

    #[inline(never)]
    fn push_stream_and_bodies(&mut self, to: &mut Scratch, path: &[u8], settings: &ObserverSettings) {
        let (stream, gen_ai) = self.stream_and_bodies(path, settings);
        stream.push(to);
        gen_ai.push(to);
    }
}
