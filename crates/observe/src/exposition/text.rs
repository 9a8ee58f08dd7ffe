//! A writer for small pages, where convenience matters more than nanoseconds: the machine's families, the agent's own.

use super::families::Kind;
use super::labels::write_label;
use super::number::Number;
use super::page::header;
use plimsoll_host::Timestamp;

#[derive(Debug, Default)]
pub struct Text {
    out: Vec<u8>,
    name: String,
}

impl Text {
    /// Starts a family; its series follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Self {
        self.out.extend_from_slice(&header(name, kind, help));
        name.clone_into(&mut self.name);
        self
    }

    /// Adds a series; labels in alphabetical order.
    pub fn series(
        &mut self,
        labels: &[(&str, &str)],
        value: Number,
        at: Option<Timestamp>,
    ) -> &mut Self {
        self.out.extend_from_slice(self.name.as_bytes());
        if !labels.is_empty() {
            self.out.push(b'{');
            for (key, value) in labels {
                write_label(key, value, &mut self.out);
            }
            if let Some(comma) = self.out.last_mut() {
                *comma = b'}';
            }
        }
        self.out.push(b' ');
        value.write(&mut self.out);
        if let Some(at) = at {
            self.out.push(b' ');
            let mut digits = itoa::Buffer::new();
            self.out
                .extend_from_slice(digits.format(at.millis()).as_bytes());
        }
        self.out.push(b'\n');
        self
    }

    /// A family of one plain series.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: Number) -> &mut Self {
        self.family(name, kind, help).series(&[], value, None)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}
