//! Callers whose sampling decision counts: networks in CIDR form, or all callers. Other callers cannot influence
//! sampling, so their trace ids are weighed by a hash whose key they do not know.

use crate::ratio::R_END;
use queue::platform;
use queue::system::random_id;
use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

/// The origin of a request's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It begins here, or in a tracer of this process: its id is random.
    Nobody,
    /// A caller that is not trusted: it may have chosen the id.
    Stranger,
    /// A trusted caller, and its statements about the trace.
    Trusted(Parent),
}

/// The statements of a trusted caller about its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    /// The flag of `traceparent`.
    pub sampled: bool,
    /// T of `ot=th:…`, below 2^56.
    pub th: Option<u64>,
    /// R of `ot=rv:…`, below 2^56.
    pub rv: Option<u64>,
}

/// Randomness of the traces of untrusted callers: SipHash-2-4 of the trace id. Equal in all processes with the same
/// key.
#[expect(deprecated, reason = "its successor takes no key, and has no fixed algorithm")]
#[derive(Clone)]
pub(crate) struct Strangers(std::hash::SipHasher);

impl Strangers {
    /// Takes the deployment's key; without one, all processes of the host share the kernel's id of its boot, which no
    /// client knows.
    #[must_use]
    pub fn new(key: Option<&[u8; 32]>) -> Self {
        const CONTEXT: &str = "inference_logging 2026-11-22 sampling of traces from strangers";
        let secret = key.map(|key| key.to_vec()).unwrap_or_else(secret_of_host);
        let derived = blake3::derive_key(CONTEXT, &secret);
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| derived[at + byte]));
        #[expect(deprecated, reason = "as above")]
        let hasher = std::hash::SipHasher::new_with_keys(half(0), half(8));
        Self(hasher)
    }

    /// R of a trace: 56 bits.
    #[inline]
    #[must_use]
    pub(crate) fn randomness(&self, trace_id: &[u8; 16]) -> u64 {
        let mut hasher = self.0.clone();
        hasher.write(trace_id);
        hasher.finish() & (R_END - 1)
    }
}

impl fmt::Debug for Strangers {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Strangers")
    }
}

fn secret_of_host() -> Vec<u8> {
    // If the kernel does not provide it, each process decides alone.
    platform::boot_id().map_or_else(|| random_id().unwrap_or(0).to_le_bytes().to_vec(), String::into_bytes)
}

/// Trusted addresses; none by default.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    everybody: bool,
    /// Network and prefix length, IPv4 as IPv4-mapped IPv6.
    networks: Box<[(u128, u128)]>,
}

impl Callers {
    /// Reads `*`, addresses, and networks such as `10.0.0.0/8` or `fd00::/8`.
    ///
    /// # Errors
    /// A sentence that names the first one that is none of these.
    pub fn parse<S: AsRef<str>>(callers: &[S]) -> Result<Self, String> {
        let everybody = callers.iter().any(|caller| caller.as_ref() == "*");
        let networks: Option<Result<Vec<_>, String>> = (!everybody).then(|| {
            callers
                .iter()
                .map(|caller| network(caller.as_ref()).ok_or(format!("{:?}: not a network", caller.as_ref())))
                .collect()
        });
        Ok(Self { everybody, networks: networks.transpose()?.unwrap_or_default().into() })
    }

    /// Whether no caller is trusted: then no address needs to be examined.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everybody && self.networks.is_empty()
    }

    /// Whether the caller at `address` is trusted. A caller without an address (a Unix socket) is trusted only with
    /// `*`.
    #[must_use]
    pub fn contains(&self, address: &str) -> bool {
        if self.everybody {
            return true;
        }
        let Some(address) = (!self.networks.is_empty()).then(|| parse(address)).flatten() else { return false };
        self.networks.iter().any(|(network, mask)| address & mask == *network)
    }
}

fn network(text: &str) -> Option<(u128, u128)> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let ip: IpAddr = address.parse().ok()?;
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    let length: u32 = length.map_or(Some(bits), |length| length.parse().ok().filter(|length| *length <= bits))?;
    // The 96 bits of the mapping are part of an IPv4 network.
    let mask = u128::MAX.checked_shl(bits - length).unwrap_or(0);
    let network = mapped(ip);
    (network & !mask == 0).then_some((network, mask))
}

fn parse(address: &str) -> Option<u128> {
    // A link-local address may carry its interface: fe80::1%eth0.
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    address.parse().ok().map(mapped)
}

fn mapped(ip: IpAddr) -> u128 {
    let ip: Ipv6Addr = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ip.to_bits()
}
