//! JSON, written by hand: keys in the order that Go's structs have them, compact or indented.

/// Writes into a buffer that outlives it; a list is written piece by piece.
#[derive(Debug)]
pub struct Json {
    pub out: Vec<u8>,
    indented: bool,
    depth: usize,
    /// Nothing has been written into the innermost object or list yet.
    fresh: bool,
    /// Something was handed over already.
    begun: bool,
}

impl Json {
    pub fn new(indented: bool) -> Self {
        Self {
            out: Vec::new(),
            indented,
            depth: 0,
            fresh: true,
            begun: false,
        }
    }

    /// For a piece of the same document that belongs this deep.
    pub fn elsewhere(&self, depth: usize) -> Self {
        Self {
            depth,
            ..Self::new(self.indented)
        }
    }

    /// Hands over what is written; the place within the document stays.
    pub fn take(&mut self) -> Vec<u8> {
        self.begun |= !self.out.is_empty();
        std::mem::take(&mut self.out)
    }

    /// All that was written so far is still here.
    pub fn is_whole(&self) -> bool {
        !self.begun
    }

    pub fn object(&mut self, content: impl FnOnce(&mut Self)) {
        self.open(b'{');
        content(self);
        self.close(b'}');
    }

    pub fn list(&mut self, content: impl FnOnce(&mut Self)) {
        self.open(b'[');
        content(self);
        self.close(b']');
    }

    pub fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth += 1;
        self.fresh = true;
    }

    pub fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        if !self.fresh {
            self.new_line();
        }
        self.out.push(bracket);
        self.fresh = false;
    }

    fn new_line(&mut self) {
        if self.indented {
            self.out.push(b'\n');
            for _ in 0..self.depth {
                self.out.extend_from_slice(b"  ");
            }
        }
    }

    /// Before each element of a list.
    pub fn element(&mut self) {
        if !self.fresh {
            self.out.push(b',');
        }
        self.fresh = false;
        self.new_line();
    }

    /// One of our own keys, which needs no escaping.
    pub fn key(&mut self, key: &'static str) -> &mut Self {
        self.element();
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out
            .extend_from_slice(if self.indented { b"\": " } else { b"\":" });
        self
    }

    pub fn field(&mut self, key: &'static str, text: &str) {
        self.key(key).text(text);
    }

    /// Of a map whose keys are not ours.
    pub fn entry(&mut self, key: &str, text: &str) {
        self.element();
        self.text(key);
        self.out
            .extend_from_slice(if self.indented { b": " } else { b":" });
        self.text(text);
    }

    /// A text of our own making, which needs no escaping.
    pub fn plain(&mut self, key: &'static str, text: &str) {
        self.key(key).out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }

    pub fn text(&mut self, text: &str) {
        self.out.push(b'"');
        if text.bytes().any(needs_escape) {
            self.escaped(text);
        } else {
            self.out.extend_from_slice(text.as_bytes());
        }
        self.out.push(b'"');
    }

    pub fn literal(&mut self, literal: &str) {
        self.out.extend_from_slice(literal.as_bytes());
    }

    /// Characters that mean something in HTML are escaped too, as Go does.
    fn escaped(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.out.extend_from_slice(&[b'\\', byte]),
                byte if needs_escape(byte) => {
                    self.out
                        .extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                byte => self.out.push(byte),
            }
        }
    }

    /// Compact documents end with a new line, indented ones do not.
    pub fn end(&mut self) {
        if !self.indented {
            self.out.push(b'\n');
        }
    }
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')
}

/// Looked up, for all bytes of a list.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_special(byte as u8);
        byte += 1;
    }
    table
};

fn needs_escape(byte: u8) -> bool {
    SPECIAL[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(indented: bool) -> String {
        let mut json = Json::new(indented);
        json.object(|json| {
            json.field("a", "x\"<y");
            json.key("b").object(|_| {});
            json.key("c").list(|json| {
                json.element();
                json.text("1");
                json.element();
                json.literal("null");
            });
        });
        json.end();
        String::from_utf8(json.take()).unwrap()
    }

    #[test]
    fn compact_and_indented() {
        assert_eq!(
            sample(false),
            "{\"a\":\"x\\\"\\u003cy\",\"b\":{},\"c\":[\"1\",null]}\n"
        );
        assert_eq!(
            sample(true),
            "{\n  \"a\": \"x\\\"\\u003cy\",\n  \"b\": {},\n  \"c\": [\n    \"1\",\n    null\n  ]\n}"
        );
    }
}
