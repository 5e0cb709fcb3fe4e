//! Path patterns of the configuration: `/ready`, `/items/{id}`, `/v1/*`, each over bytes as the server received them.
//!
//! `{name}` stands for one segment that is not empty, a `*` at the end for any rest of the path. Matching allocates
//! nothing.

/// One compiled pattern.
#[derive(Clone, Debug)]
pub struct RoutePattern {
    /// The path up to the first variable segment: it rules out most paths.
    prefix: Box<[u8]>,
    /// The segments behind it.
    segments: Box<[Segment]>,
    /// Any rest of the path is matched too.
    open: bool,
}

#[derive(Clone, Debug)]
enum Segment {
    Exactly(Box<[u8]>),
    Any,
}

impl RoutePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// A sentence that names what is wrong with it.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let Some(rest) = pattern.strip_prefix('/') else {
            return Err(format!("{pattern:?}: a path pattern begins with /"));
        };
        let mut parts: Vec<&str> = rest.split('/').collect();
        let open = parts.pop_if(|last| *last == "*").is_some();
        let segments: Result<Vec<Segment>, String> = parts.iter().map(|part| Segment::parse(part, pattern)).collect();
        let mut segments = segments?;
        let literals = segments.iter().take_while(|segment| matches!(segment, Segment::Exactly(_))).count();
        let is_whole = literals == segments.len() && !open;
        let mut prefix = format!("/{}", parts[..literals].join("/"));
        if literals > 0 && !is_whole {
            prefix.push('/');
        }
        segments.drain(..literals);
        Ok(Self { prefix: prefix.into_bytes().into(), segments: segments.into(), open })
    }

    /// Whether the pattern matches `path`.
    #[inline]
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(&*self.prefix) else { return false };
        if self.segments.is_empty() { self.open || rest.is_empty() } else { self.matches_segments(rest) }
    }

    fn matches_segments(&self, mut rest: &[u8]) -> bool {
        for (position, segment) in self.segments.iter().enumerate() {
            let end = rest.iter().position(|byte| *byte == b'/');
            if !segment.matches(&rest[..end.unwrap_or(rest.len())]) {
                return false;
            }
            let last = position + 1 == self.segments.len();
            match end {
                Some(end) if !last || self.open => rest = &rest[end + 1..],
                None if last && !self.open => return true,
                _ => return false,
            }
        }
        self.open
    }

    /// The path itself, if the pattern stands for one path only.
    #[must_use]
    pub fn literal(&self) -> Option<&[u8]> {
        (self.segments.is_empty() && !self.open).then_some(&self.prefix)
    }
}

impl Segment {
    fn parse(part: &str, pattern: &str) -> Result<Self, String> {
        if part.len() > 2
            && part.starts_with('{')
            && part.ends_with('}')
            && !part[1..part.len() - 1].contains(['{', '}'])
        {
            return Ok(Self::Any);
        }
        if part.contains(['{', '}', '*', '?', '#']) || !part.bytes().all(|byte| byte.is_ascii_graphic() || byte >= 0x80)
        {
            return Err(format!(
                "{pattern:?}: a segment of a path pattern is text, {{name}} for any one segment, or * at the end"
            ));
        }
        Ok(Self::Exactly(part.as_bytes().into()))
    }

    #[inline]
    fn matches(&self, part: &[u8]) -> bool {
        match self {
            Self::Exactly(text) => **text == *part,
            Self::Any => !part.is_empty(),
        }
    }
}

/// Patterns that are only asked whether one of them matches: most of them plain paths.
#[derive(Clone, Debug, Default)]
pub struct PathSet {
    /// Plain paths, and a bit for each of their lengths: the length alone rules out most other paths.
    literals: Box<[Box<[u8]>]>,
    lengths: u64,
    patterns: Box<[RoutePattern]>,
}

impl PathSet {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// As [`RoutePattern::parse`].
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, String> {
        let mut set = (Vec::new(), 0, Vec::new());
        for pattern in patterns {
            let pattern = RoutePattern::parse(pattern.as_ref())?;
            match pattern.literal() {
                Some(path) => {
                    set.1 |= length_bit(path);
                    set.0.push(path.into());
                }
                None => set.2.push(pattern),
            }
        }
        Ok(Self { literals: set.0.into(), lengths: set.1, patterns: set.2.into() })
    }

    #[inline]
    #[must_use]
    pub fn contains(&self, path: &[u8]) -> bool {
        (self.lengths & length_bit(path) != 0 && self.literals.iter().any(|literal| **literal == *path))
            || self.patterns.iter().any(|pattern| pattern.matches(path))
    }
}

#[inline]
fn length_bit(path: &[u8]) -> u64 {
    1 << path.len().min(63)
}
