//! Callers whose sampling decision counts: networks in CIDR form, or everybody.

use std::net::{IpAddr, Ipv6Addr};

/// Addresses that are trusted; by default nobody's.
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

    /// Whether anybody is trusted at all: without, no address needs to be looked at.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everybody && self.networks.is_empty()
    }

    /// Whether the caller at `address` is trusted. One without an address (a Unix socket) is with `*` only.
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
    // Of an IPv4 network the 96 bits of the mapping are part of it.
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
