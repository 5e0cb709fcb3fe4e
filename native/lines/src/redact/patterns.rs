//! Texts that are secrets by their form: built-in patterns and regular expressions of the configuration.
//!
//! Time is linear in the text. For one match, the expressions of `regex` are linear; the search after each match is so
//! only if a match has a greatest length. For an expression without one, [`MOST_UNBOUNDED`] matches are replaced one by
//! one, and then the rest of the text as a whole.

use super::Refused;
use super::finders::{self, Hits};
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Look;

/// Names of the built-in patterns.
pub const BUILT_IN: [&str; 5] = ["email", "phone", "card", "key", "bearer"];
const LONGEST_EXPRESSION: usize = 4096;
const LONGEST_NAME: usize = 64;
/// Memory that a compiled expression may take; `\w{1000}` takes more.
const MOST_COMPILED_BYTES: usize = 1 << 20;
const DEEPEST: u32 = 50;
const MOST_UNBOUNDED: usize = 256;

/// Names of fields that hold credentials: their values do not always look like it.
const FIELD_NAMES: [(&str, &[&str]); 2] = [
    ("bearer", &["authorization", "proxy-authorization", "cookie", "set-cookie"]),
    (
        "key",
        &[
            "api_key", "api-key", "apikey", "x-api-key", "password", "passwd", "secret", "client_secret", "secret_key",
            "access_key", "access_token", "refresh_token", "private_key", "id_token", "auth_token", "session_token",
            "session_id", "passphrase", "pwd",
        ],
    ),
];

/// Parts of names of fields that hold a credential if their value is a text: see [`Patterns::credential`].
const NAME_PARTS: [&str; 4] = ["token", "secret", "pass", "session"];
/// Words with "pass" in them that have nothing to do with one.
const NO_PASSWORDS: [&str; 8] =
    ["passage", "passed", "passenger", "passes", "passing", "passion", "passive", "compass"];

/// What a text may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(u8);

impl Hints {
    /// An at sign.
    pub const AT: Self = Self(1);
    /// Digits enough for a number of a card or a phone.
    pub const DIGITS: Self = Self(2);
    /// The beginning of a key or credentials, or their names.
    pub const KEYS: Self = Self(4);
    /// The name of a field.
    pub const NAMES: Self = Self(8);
    /// Escapes or percent-encoding that can hide any of the others.
    pub const CODED: Self = Self(16);
    /// A match of an expression of the configuration.
    pub const CUSTOM: Self = Self(32);
    /// The mark of a cut.
    pub const CUT: Self = Self(64);

    /// Anything at all.
    pub const ALL: Self = Self(127);

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn add(&mut self, other: Self, is_there: bool) {
        if is_there {
            self.0 |= other.0;
        }
    }
}

impl std::ops::BitOr for Hints {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An expression of the configuration.
#[derive(Debug)]
struct Custom {
    name: String,
    expression: Regex,
    most: usize,
    /// Whether a match in a text is also one in any line that holds the text unchanged.
    is_local: bool,
}

/// All patterns.
#[derive(Debug)]
pub struct Patterns {
    email: bool,
    phone: Option<Regex>,
    card: bool,
    key: Option<[Regex; 2]>,
    bearer: Option<Regex>,
    custom: Vec<Custom>,
}

impl Patterns {
    /// Take the built-in patterns `names`, and compile `custom`: pairs of name and expression.
    pub fn compile(names: &[String], custom: &[(String, String)]) -> Result<Self, Refused> {
        for name in names {
            if !BUILT_IN.contains(&name.as_str()) {
                let why = format!("must be one of {}", BUILT_IN.join(", "));
                return Err(Refused { what: format!("redact_patterns={name:?}"), why });
            }
        }
        if custom.len() > super::MAX_RULES {
            let what = format!("redact_custom with {} expressions", custom.len());
            return Err(Refused { what, why: format!("must be at most {}", super::MAX_RULES) });
        }
        let has = |name: &str| names.iter().any(|wanted| wanted == name);
        Ok(Self {
            email: has("email"),
            phone: has("phone").then(finders::phone),
            card: has("card"),
            key: has("key").then(finders::key),
            bearer: has("bearer").then(finders::bearer),
            custom: custom.iter().map(|(name, text)| compiled(name, text)).collect::<Result<_, _>>()?,
        })
    }

    pub fn is_empty(&self) -> bool {
        !self.has_built_in() && self.custom.is_empty()
    }

    /// Names of fields that come with the patterns that are on.
    pub fn field_names(&self) -> impl Iterator<Item = (&'static str, &'static &'static str)> {
        let is_on = |pattern: &str| match pattern {
            "bearer" => self.bearer.is_some(),
            _ => self.key.is_some(),
        };
        let on = FIELD_NAMES.iter().filter(move |(pattern, _)| is_on(pattern));
        on.flat_map(|(pattern, names)| names.iter().map(|name| (*pattern, name)))
    }

    /// Parts of names that [`Self::credential`] knows.
    pub fn name_parts(&self) -> impl Iterator<Item = &'static str> {
        NAME_PARTS.into_iter().filter(|_| self.key.is_some())
    }

    /// Whether a text in the field `name` is a credential: `token`, `*_token`, `*secret*`, `*pass*`, `session*`.
    pub fn credential(&self, name: &[u8]) -> Option<&'static str> {
        if self.key.is_none() || name.len() > LONGEST_NAME {
            return None;
        }
        let is_named = name.ends_with(b"Token") || {
            let name = name.to_ascii_lowercase();
            let has = |part: &str| memchr::memmem::find(&name, part.as_bytes()).is_some();
            name == b"token"
                || [&b"_token"[..], b"-token"].iter().any(|end| name.ends_with(end))
                || name.starts_with(b"session")
                || has("secret")
                || has("pass") && !NO_PASSWORDS.iter().any(|word| has(word))
        };
        is_named.then_some("key")
    }

    pub fn has_built_in(&self) -> bool {
        self.email || self.card || self.phone.is_some() || self.key.is_some() || self.bearer.is_some()
    }

    /// Whether an at sign matters: in an address, or before a host.
    pub fn needs_at(&self) -> bool {
        self.email || self.key.is_some()
    }

    /// Whether a text has as many digits as a pattern needs.
    pub fn has_digits(&self, text: &[u8]) -> bool {
        (self.card || self.phone.is_some()) && finders::has_digits(text, self.phone.is_some())
    }

    /// Words, one of which each key and each credential begins with or follows, in any case.
    pub fn words(&self) -> Vec<String> {
        let keys = self.key.is_some().then(finders::key_words).unwrap_or_default();
        let bearer = if self.bearer.is_some() { &finders::BEARER_WORDS[..] } else { &[] };
        keys.into_iter().chain(bearer.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Whether an expression can match something in `text`, a line or a part of one.
    pub fn may_match_custom(&self, text: &[u8]) -> bool {
        let escaped = !self.custom.is_empty() && memchr::memchr(b'\\', text).is_some();
        self.custom.iter().any(|custom| escaped || !custom.is_local || custom.expression.is_match(text))
    }

    /// Show each range of `text` that a pattern matches, and the pattern's name, to `hit`. Ranges may overlap.
    pub fn find(&self, text: &[u8], hints: Hints, hit: &mut Hits<'_>) {
        if self.email && hints.has(Hints::AT | Hints::CUT) {
            finders::emails(text, hit);
        }
        if self.card && hints.has(Hints::DIGITS | Hints::CUT) {
            finders::cards(text, hit);
        }
        if let Some(expression) = self.phone.as_ref().filter(|_| hints.has(Hints::DIGITS | Hints::CUT)) {
            finders::phones(expression, text, hit);
        }
        if let Some(expressions) = self.key.as_ref().filter(|_| hints.has(Hints::KEYS | Hints::AT | Hints::CUT)) {
            finders::keys(expressions, text, hit);
        }
        if let Some(expression) = self.bearer.as_ref().filter(|_| hints.has(Hints::KEYS)) {
            finders::bearers(expression, text, hit);
        }
        if hints.has(Hints::CUSTOM) {
            self.find_custom(text, hit);
        }
    }

    fn find_custom(&self, text: &[u8], hit: &mut Hits<'_>) {
        for custom in &self.custom {
            for (count, found) in custom.expression.find_iter(text).enumerate() {
                if count >= custom.most {
                    hit(found.start()..text.len(), &custom.name);
                    break;
                }
                hit(found.range(), &custom.name);
            }
        }
    }

    /// Whether a number is a secret: a card's, or one that an expression matches; returns the name.
    pub fn number(&self, word: &[u8]) -> Option<&str> {
        if self.card && finders::is_card_number(word) {
            return Some("card");
        }
        self.custom.iter().find(|custom| custom.expression.is_match(word)).map(|custom| custom.name.as_str())
    }
}

fn compiled(name: &str, text: &str) -> Result<Custom, Refused> {
    let refused = |why: String| Refused { what: format!("redact_custom[{name:?}]={text:?}"), why };
    let is_named = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if !is_named {
        return Err(refused(format!("must have a name of 1 to {LONGEST_NAME} letters, digits, '_', '-' or '.'")));
    }
    if text.len() > LONGEST_EXPRESSION {
        return Err(refused(format!("must be at most {LONGEST_EXPRESSION} bytes")));
    }
    let parsed = ParserBuilder::new().nest_limit(DEEPEST).utf8(false).build().parse(text);
    let parsed = parsed.map_err(|error| refused(one_line(&error.to_string())))?;
    let properties = parsed.properties();
    if properties.minimum_len().is_none_or(|least| least == 0) {
        return Err(refused("must not match an empty text, or nothing at all".to_owned()));
    }
    let expression = RegexBuilder::new(text).size_limit(MOST_COMPILED_BYTES).nest_limit(DEEPEST).build();
    let expression = expression.map_err(|error| {
        refused(match error {
            regex::Error::CompiledTooBig(_) => format!("must take at most {MOST_COMPILED_BYTES} bytes when compiled"),
            other => one_line(&other.to_string()),
        })
    })?;
    let most = if properties.maximum_len().is_some() { usize::MAX } else { MOST_UNBOUNDED };
    let looks = properties.look_set();
    let is_local = looks.iter().all(|look| !matches!(look, Look::Start | Look::End) && !is_of_lines(look));
    Ok(Custom { name: name.to_owned(), expression, most, is_local })
}

fn is_of_lines(look: Look) -> bool {
    matches!(look, Look::StartLF | Look::EndLF | Look::StartCRLF | Look::EndCRLF)
}

/// The last line of the parser's message names the error; the lines before show where.
fn one_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default().trim();
    format!("is no regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
}
