//! What the configuration and the application add to a request's record. The headers of most requests stand in the slot
//! alone, from the beginning to the record.

use super::{Observer, ObserverSettings};
use crate::added::{AddedFields, Members};
use crate::fields::{Added, Attributes, MembersValue};
use crate::in_flight::InFlight;
use crate::in_flight::facts::{SHORT_TAIL_BYTES, members_of};
use queue::producer::Producer;

impl Observer {
    /// The request has these headers of those that are recorded; whether its slot keeps them.
    #[inline]
    pub fn identify_few(&mut self, members: &[u8]) -> bool {
        self.members_in_slot = self.in_flight.as_ref().is_some_and(|in_flight| in_flight.identify_few(members));
        self.members_in_slot
    }

    /// Takes a copy of the members that only the slot has.
    fn own_members(&mut self) {
        if std::mem::take(&mut self.members_in_slot)
            && let Some(slot) = self.in_flight.as_ref().and_then(InFlight::slot)
        {
            self.added.get_or_insert_default().members.add_all(members_of(&slot));
        }
    }

    /// Takes all members that are added to the record into one place.
    #[inline(never)]
    pub(super) fn own_all_members(&mut self, settings: &ObserverSettings) {
        self.own_members();
        if std::mem::take(&mut self.adds_of_body) {
            self.added.get_or_insert_default().members.add_all(settings.recorded.of_bodies().as_bytes());
        }
    }

    /// The request has these headers of those that are recorded.
    #[cold]
    pub fn identify(&mut self, members: Members) {
        if !members.is_empty() {
            if let Some(in_flight) = &self.in_flight {
                in_flight.identify(&members);
            }
            self.added.get_or_insert_default().members.add_all(members.as_bytes());
        }
    }

    /// The application has set these members so far: the slot keeps them, before those of headers.
    pub fn announce(&mut self, members: &Members) {
        let Some(in_flight) = self.in_flight.as_ref().filter(|_| !members.is_empty()) else { return };
        self.in_flight_limits.1 = self.in_flight_limits.1.min(SHORT_TAIL_BYTES);
        if !self.members_in_slot && self.added.is_none() {
            return in_flight.identify(members);
        }
        let mut all = members.clone();
        self.own_members();
        all.add_all(self.added.as_ref().map_or(b"", |added| added.members.as_bytes()));
        if let Some(in_flight) = &self.in_flight {
            in_flight.identify(&all);
        }
    }

    /// The application has set these fields, which go before those of headers.
    pub fn add(&mut self, mut fields: Box<AddedFields>) {
        self.own_members();
        if let Some(added) = &self.added {
            fields.put_behind(added);
        }
        self.added = Some(fields);
    }

    /// What is added to the record, within the room of one.
    pub(super) fn added<'a>(added: Option<&'a AddedFields>, producer: &Producer) -> Option<Added<'a>> {
        let record_bytes = producer.max_record_bytes();
        added.map(|added| Added {
            members: MembersValue { members: added.members.as_bytes(), more: b"", record_bytes },
            attributes: Attributes { map: added.attributes(), record_bytes },
        })
    }
}
