//! Messages and their parts while they are collected: pieces of the body, borrowed and still escaped.

/// A piece of a text in the form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Between the quotes, still escaped; or plain text if the body is not JSON.
    pub raw: &'a [u8],
    pub is_plain: bool,
    /// The text before it is missing.
    pub lacks_start: bool,
    /// The text after it is missing.
    pub lacks_end: bool,
}

impl<'a> Piece<'a> {
    pub const fn whole(raw: &'a [u8]) -> Self {
        Self { raw, is_plain: false, lacks_start: false, lacks_end: false }
    }

    /// Without its end, if it `is_cut`.
    pub const fn begun(raw: &'a [u8], is_cut: bool) -> Self {
        Self { raw, is_plain: false, lacks_start: false, lacks_end: is_cut }
    }
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Text,
    Reasoning,
    Refusal,
    /// An unknown body: JSON, or the events of a stream.
    Json,
    Events,
    ToolCall,
    ToolResponse,
    /// Media as a data URL, as base64, or as a link to them.
    Media,
    /// A file as it is.
    File,
    /// Numbers: an embedding, or token ids.
    Numbers,
}

/// One part of a message.
#[derive(Clone, Debug, Default)]
pub struct Part<'a> {
    pub kind: Kind,
    /// `type` in the form of the body.
    pub type_name: Option<&'a [u8]>,
    pub pieces: Vec<Piece<'a>>,
    pub id: Option<&'a [u8]>,
    pub name: Option<&'a [u8]>,
    /// Format of media, such as `wav`.
    pub format: Option<&'a [u8]>,
    /// Position of a tool call in its message.
    pub index: Option<u64>,
    /// It is reasoning, as Gemini's API says.
    pub is_thought: bool,
    /// The numbers, and their count.
    pub numbers: Option<Box<Numbers>>,
    /// A part of it is in the missing part of the body.
    pub is_cut: bool,
}

/// Numbers that are not written: their count, and the hash of the text between the brackets, without blanks.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub count: u64,
    pub hasher: blake3::Hasher,
}

impl Numbers {
    pub fn keyed(key: Option<&[u8; 32]>) -> Self {
        Self { count: 0, hasher: key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed) }
    }

    pub fn push(&mut self, word: &[u8]) {
        if self.count > 0 {
            self.hasher.update(b",");
        }
        self.hasher.update(word);
        self.count += 1;
    }
}

impl<'a> Part<'a> {
    pub fn of(kind: Kind, piece: Piece<'a>) -> Self {
        Self { kind, pieces: vec![piece], is_cut: piece.lacks_start || piece.lacks_end, ..Self::default() }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let is_named = self.kind == Kind::ToolCall || (self.kind == Kind::Media && self.id.is_some());
        self.pieces.is_empty() && self.numbers.is_none() && !is_named
    }

    /// Whether `more`, which came later, continues this part.
    fn goes_on_with(&self, more: &Self) -> bool {
        let is_text = matches!(self.kind, Kind::Text | Kind::Reasoning | Kind::Refusal);
        let is_same_call = self.kind == Kind::ToolCall && self.index.is_some() && self.index == more.index;
        self.kind == more.kind && (is_text || is_same_call)
    }

    fn append(&mut self, more: Self) {
        self.pieces.extend(more.pieces);
        self.id = self.id.or(more.id);
        self.name = self.name.or(more.name);
        self.is_cut |= more.is_cut;
    }
}

/// One message, or one choice of an answer.
#[derive(Clone, Debug, Default)]
pub struct Message<'a> {
    /// Number of the choice.
    pub index: Option<u64>,
    pub role: Option<&'a [u8]>,
    pub finish_reason: Option<&'a [u8]>,
    pub parts: Vec<Part<'a>>,
    /// The members beside the parts: name, id and arguments of a call, or the result of a tool.
    pub own: Part<'a>,
    /// The array around it is unknown: it is a message only if it has a role or a type.
    pub is_doubtful: bool,
}

impl<'a> Message<'a> {
    /// Add a part, or the continuation of one.
    pub fn join(&mut self, part: Part<'a>) {
        let goes_on = |known: &&mut Part<'a>| known.goes_on_with(&part);
        let is_call = part.kind == Kind::ToolCall;
        let known = if is_call { self.parts.iter_mut().find(goes_on) } else { self.parts.last_mut().filter(goes_on) };
        match known {
            Some(known) => known.append(part),
            None => self.parts.push(part),
        }
    }

    /// Add a later piece of the same message.
    pub fn merge(&mut self, more: Self) {
        self.role = self.role.or(more.role);
        self.finish_reason = more.finish_reason.or(self.finish_reason);
        more.parts.into_iter().for_each(|part| self.join(part));
    }

    /// Note that something is missing here: later text is not a direct continuation.
    pub fn cut(&mut self) {
        if let Some(part) = self.parts.last_mut()
            && let Some(piece) = part.pieces.last_mut()
        {
            (part.is_cut, piece.lacks_end) = (true, true);
        }
    }
}

impl<'a> Part<'a> {
    /// Let its type say what its text is.
    pub fn settle(&mut self) {
        self.kind = match (self.kind, self.type_name) {
            (Kind::Text, _) if self.is_thought => Kind::Reasoning,
            (Kind::Text, Some(b"tool_result")) => Kind::ToolResponse,
            (Kind::Text, Some(b"tool_use")) => Kind::ToolCall,
            (kind, _) => kind,
        };
    }

    /// Hold a text as the content of the part.
    pub fn hold(&mut self, kind: Kind, piece: Option<Piece<'a>>) {
        if let Some(piece) = piece {
            self.kind = kind;
            self.pieces.push(piece);
        }
    }
}

impl Message<'_> {
    /// Place the members beside the parts among them.
    pub fn place_own_part(&mut self, is_request: bool) {
        let own = std::mem::take(&mut self.own);
        self.own.type_name = own.type_name;
        if !own.pieces.is_empty() {
            let role: &[u8] = if own.kind == Kind::ToolResponse { b"tool" } else { b"assistant" };
            self.role = self.role.or(Some(role));
            self.parts.push(own);
        } else if is_request && matches!(self.role, Some(b"tool" | b"function")) {
            for part in self.parts.iter_mut().filter(|part| part.kind == Kind::Text) {
                (part.kind, part.id) = (Kind::ToolResponse, own.id);
            }
        } else if own.type_name == Some(b"reasoning") {
            self.role = self.role.or(Some(b"assistant"));
            let texts = self.parts.iter_mut().filter(|part| part.kind == Kind::Text);
            texts.for_each(|part| part.kind = Kind::Reasoning);
        }
    }
}
