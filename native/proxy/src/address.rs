//! An address on the command line.

use std::fmt::{Display, Formatter, Result as Written};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `host:port`, `[address]:port` or one of them after `http://`.
    ///
    /// # Errors
    /// A sentence with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not host:port or http://host:port.");
        if text.starts_with("https://") {
            return Err(format!("'{text}' needs TLS, which this proxy does not speak."));
        }
        let authority = text.strip_prefix("http://").unwrap_or(text);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ', '[', ']']);
        if !is_host(bare.unwrap_or(host)) || (bare.is_none() && host.contains(':')) {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Display for Address {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        if self.host.contains(':') {
            return write!(to, "[{}]:{}", self.host, self.port);
        }
        write!(to, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, shown) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://engine:80/", "engine:80"),
            ("[::1]:9", "[::1]:9"),
            ("http://[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()).as_deref(), Ok(shown));
        }
        for wrong in
            ["8000", ":8000", "host", "host:", "host:99999", "::1:9", "https://host:1", "http://a/b:1", "a b:1"]
        {
            let sentence = Address::parse(wrong).expect_err(wrong);
            assert!(sentence.contains(&format!("'{wrong}'")), "{sentence}");
        }
    }
}
