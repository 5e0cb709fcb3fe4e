//! Counts by tenant, for the names that the configuration lists; all others count together.
//!
//! The table of names only grows, as that of models does: a name that is listed no more keeps its place. Places that run out
//! count as [`OTHER_TENANT`].

use super::Numbers;
use super::histogram::TOKEN_TYPES;
use super::labels::{NAME_BYTES, OUTCOMES, Table, text};

/// Most names, with those of earlier configurations.
pub const MAX_TENANTS: usize = 64;
/// First place of a listed name; 0 is no tenant, 1 all others.
const FIRST: usize = 2;
/// The places of a table.
pub const PLACES: usize = MAX_TENANTS + FIRST;
/// The requests by outcome, then the tokens by type.
pub const TENANT_WORDS: usize = OUTCOMES.len() + TOKEN_TYPES.len();
/// The tenants that are not listed.
pub const OTHER_TENANT: &str = "other";
const OTHER: u8 = 1;

queue::shared! {
    /// The names in the file.
    pub struct TenantNames(Table<PLACES>);
}

/// The counts of all tenants.
pub type TenantNumbers = [Numbers<TENANT_WORDS>; PLACES];

/// What one tenant's requests add up to.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantCounts {
    /// Its name, or [`OTHER_TENANT`].
    pub name: String,
    /// As [`OUTCOMES`] names them.
    pub outcomes: [f64; OUTCOMES.len()],
    /// As [`TOKEN_TYPES`] names them.
    pub tokens: [f64; TOKEN_TYPES.len()],
}

/// The leader's knowledge of the names.
pub struct Tenants {
    names: Vec<Box<[u8]>>,
    /// The last tenant and its place: the next one is mostly the same.
    last: (Vec<u8>, u8),
    is_on: bool,
}

impl Tenants {
    /// Counts for the `listed` names, which get places; for no tenant at all if there are none.
    pub fn new(table: &'static TenantNames, listed: &[String]) -> Self {
        let mut names = table.0.read();
        for name in listed.iter().map(String::as_bytes) {
            let is_new = names.iter().all(|known| **known != *name);
            if is_new && names.len() < MAX_TENANTS && (1..=NAME_BYTES).contains(&name.len()) {
                table.0.append(names.len() + FIRST, name);
                names.push(name.into());
            }
        }
        Self { names, last: (Vec::new(), 0), is_on: !listed.is_empty() }
    }

    /// The place of a request's tenant; 0: it has none, or none is counted.
    #[inline]
    pub fn place(&mut self, tenant: &[u8]) -> u8 {
        if tenant.is_empty() || !self.is_on {
            return 0;
        }
        if self.last.0 != tenant {
            let place = self.names.iter().position(|name| **name == *tenant).map_or(OTHER, |at| (at + FIRST) as u8);
            self.last = (tenant.to_vec(), place);
        }
        self.last.1
    }
}

/// Reads the counts of the tenants that have any.
pub fn read(names: &TenantNames, numbers: &TenantNumbers) -> Vec<TenantCounts> {
    let names = names.0.read();
    let counted =
        numbers.iter().map(Numbers::read).enumerate().skip(1).filter(|(_, words)| words.iter().any(|word| *word > 0.0));
    let counts = counted.map(|(place, words)| {
        let (mut outcomes, mut tokens) = ([0.0; OUTCOMES.len()], [0.0; TOKEN_TYPES.len()]);
        outcomes.copy_from_slice(&words[..OUTCOMES.len()]);
        tokens.copy_from_slice(&words[OUTCOMES.len()..]);
        let name = if place == usize::from(OTHER) { OTHER_TENANT.to_owned() } else { text(&names, place as u8) };
        TenantCounts { name, outcomes, tokens }
    });
    counts.collect()
}
