//! Bodies in protobuf: what Go clients send unless told otherwise. Field numbers come with the facts about types.

use base64::Engine;

use super::json::{Node, SyntaxError};
use crate::depth::{MAX_DEPTH, TooDeep};
use crate::resource::builtin_type;
use crate::schema::{Field, Shape, TypeId, Types};
use plimsoll_golang::GoDuration;
use plimsoll_golang::time;

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoMagic,
    #[error("unexpected EOF")]
    Cut,
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    #[error("no kind {kind:?} is registered for version {version:?} in protobuf")]
    UnknownKind { kind: String, version: String },
    #[error("proto: {0}")]
    TooDeep(#[from] TooDeep),
    #[error("proto: {0} is not readable here, send JSON")]
    Unreadable(&'static str),
}

/// A document, with its kind and version.
pub fn parse(body: &[u8]) -> Result<Node<'static>, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for field in Fields(meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => version = utf8(text),
                        (2, Wire::Bytes(text)) => kind = utf8(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, plain) = version.split_once('/').unwrap_or(("", &version));
    let Some(id) = builtin_type(group, plain, &kind) else {
        return Err(ProtobufError::UnknownKind { kind, version });
    };
    let mut entries = vec![
        ("kind".into(), Node::Text(kind.into())),
        ("apiVersion".into(), Node::Text(version.clone().into())),
    ];
    Reader::new().message(id, raw, 0, &mut entries)?;
    Ok(Node::Object(entries))
}

type Entries = Vec<(std::borrow::Cow<'static, str>, Node<'static>)>;

enum Wire<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::Cut)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Cut)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), ProtobufError> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).unwrap_or(0);
        let wire = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(
                self.take(8)?.try_into().map_err(|_| ProtobufError::Cut)?,
            )),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Cut)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(
                self.take(4)?.try_into().map_err(|_| ProtobufError::Cut)?,
            ))),
            other => return Err(ProtobufError::WireType(other as u8)),
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

struct Reader {
    types: &'static Types,
}

impl Reader {
    fn new() -> Self {
        Self {
            types: Types::builtin(),
        }
    }

    fn message(
        &self,
        id: TypeId,
        bytes: &[u8],
        depth: usize,
        out: &mut Entries,
    ) -> Result<(), ProtobufError> {
        self.part(&self.types.get(id).fields, &[], bytes, depth, out)
    }

    /// `within`: the numbers of the messages that this is inlined in; JSON knows nothing of them.
    fn part(
        &self,
        fields: &'static [Field],
        within: &[u32],
        bytes: &[u8],
        depth: usize,
        out: &mut Entries,
    ) -> Result<(), ProtobufError> {
        // Every level of JSON is at least one of messages.
        if depth >= MAX_DEPTH {
            return Err(TooDeep.into());
        }
        for field in Fields(bytes) {
            let (number, wire) = field?;
            let mut place = within.to_vec();
            place.push(number);
            if let Some(found) = fields.iter().find(|one| one.numbers == place) {
                self.put(found, &wire, depth, out)?;
            } else if let Wire::Bytes(inner) = wire
                && fields
                    .iter()
                    .any(|one| one.numbers.len() > place.len() && one.numbers.starts_with(&place))
            {
                self.part(fields, &place, inner, depth + 1, out)?;
            }
        }
        Ok(())
    }

    fn put(
        &self,
        field: &'static Field,
        wire: &Wire<'_>,
        depth: usize,
        out: &mut Entries,
    ) -> Result<(), ProtobufError> {
        let name = field.name.as_ref();
        match (&field.shape, wire) {
            // A list type with a name is a message of its own.
            (Shape::List(element, Some(_)), Wire::Bytes(bytes)) => {
                let list = self.items(element, bytes, depth + 1)?;
                set(out, name, list);
            }
            (Shape::List(element, None), wire) => {
                let item = self.value(element, wire, depth + 1)?;
                match out.iter_mut().find(|(key, _)| key == name) {
                    Some((_, Node::List(items))) => items.push(item),
                    _ => out.push((name.into(), Node::List(vec![item]))),
                }
            }
            (Shape::Map(element, _), Wire::Bytes(bytes)) => {
                let entry = self.entry(element, bytes, depth + 1)?;
                match out.iter_mut().find(|(key, _)| key == name) {
                    Some((_, Node::Object(entries))) => entries.push(entry),
                    _ => out.push((name.into(), Node::Object(vec![entry]))),
                }
            }
            (shape, wire) => {
                let value = self.value(shape, wire, depth + 1)?;
                set(out, name, value);
            }
        }
        Ok(())
    }

    fn items(
        &self,
        element: &'static Shape,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Node<'static>, ProtobufError> {
        let mut items = Vec::new();
        for field in Fields(bytes) {
            if let (1, wire) = field? {
                items.push(self.value(element, &wire, depth + 1)?);
            }
        }
        Ok(Node::List(items))
    }

    fn entry(
        &self,
        element: &'static Shape,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(std::borrow::Cow<'static, str>, Node<'static>), ProtobufError> {
        let mut key = String::new();
        let mut value = None;
        for field in Fields(bytes) {
            match field? {
                (1, Wire::Bytes(text)) => key = utf8(text),
                (2, Wire::Bytes(bytes)) if matches!(element, Shape::List(..)) => {
                    if let Shape::List(inner, _) = element {
                        value = Some(self.items(inner, bytes, depth)?);
                    }
                }
                (2, wire) => value = Some(self.value(element, &wire, depth)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.value(element, &Wire::Bytes(&[]), depth)?,
        };
        Ok((key.into(), value))
    }

    fn value(
        &self,
        shape: &'static Shape,
        wire: &Wire<'_>,
        depth: usize,
    ) -> Result<Node<'static>, ProtobufError> {
        Ok(match (shape, wire) {
            (Shape::Text(_), Wire::Bytes(bytes)) => Node::Text(utf8(bytes).into()),
            (Shape::Bytes, Wire::Bytes(bytes)) => Node::Text(
                base64::engine::general_purpose::STANDARD
                    .encode(bytes)
                    .into(),
            ),
            (Shape::Bool, Wire::Number(value)) => Node::Bool(*value != 0),
            // Both are sign-extended to 64 bits on the wire.
            (Shape::Int32 | Shape::Int64, Wire::Number(value)) => {
                Node::Number(value.cast_signed().to_string().into())
            }
            (Shape::Float, Wire::Fixed64(bits)) => {
                Node::Number(f64::from_bits(*bits).to_string().into())
            }
            (Shape::Struct(id), Wire::Bytes(bytes)) => {
                let mut entries = Vec::new();
                self.message(*id, bytes, depth + 1, &mut entries)?;
                Node::Object(entries)
            }
            (Shape::Quantity, Wire::Bytes(bytes)) => {
                let text = first_bytes(bytes)?.map_or_else(|| "0".to_owned(), utf8);
                Node::Text(text.into())
            }
            (Shape::Time | Shape::MicroTime, Wire::Bytes(bytes)) => moment(shape, bytes)?,
            (Shape::Duration, Wire::Bytes(bytes)) => {
                let mut nanos = 0;
                for field in Fields(bytes) {
                    if let (1, Wire::Number(value)) = field? {
                        nanos = value.cast_signed();
                    }
                }
                Node::Text(GoDuration(nanos).to_string().into())
            }
            (Shape::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
            (Shape::Any, Wire::Bytes(bytes)) => {
                let raw = first_bytes(bytes)?.ok_or(ProtobufError::Unreadable("an open value"))?;
                let text = utf8(raw);
                let node = Node::parse_within(&text, depth).map_err(|error| match error {
                    SyntaxError::TooDeep(too_deep) => too_deep.into(),
                    _ => ProtobufError::Unreadable("an open value"),
                })?;
                node.into_owned()
            }
            _ => return Err(ProtobufError::Unreadable("a field of another type")),
        })
    }
}

/// What is said again replaces what was said before, so that there are never more entries than fields.
fn set(out: &mut Entries, name: &'static str, value: Node<'static>) {
    match out.iter_mut().find(|(key, _)| key == name) {
        Some((_, was)) => *was = value,
        None => out.push((name.into(), value)),
    }
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Field 1 of a message that has no other.
fn first_bytes(message: &[u8]) -> Result<Option<&[u8]>, ProtobufError> {
    for field in Fields(message) {
        if let (1, Wire::Bytes(bytes)) = field? {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

fn moment(shape: &Shape, bytes: &[u8]) -> Result<Node<'static>, ProtobufError> {
    let (mut seconds, mut nanos) = (None, 0);
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Number(value)) => seconds = Some(value.cast_signed()),
            (2, Wire::Number(value)) => nanos = i32::try_from(value).unwrap_or(0),
            _ => {}
        }
    }
    let Some(seconds) = seconds else {
        return Ok(Node::Null);
    };
    let moment = jiff::Timestamp::new(seconds, nanos)
        .map_err(|_| ProtobufError::Unreadable("a time out of range"))?;
    Ok(Node::Text(match shape {
        Shape::Time => time::show_seconds(moment).into(),
        _ => time::show_micros(moment).into(),
    }))
}

fn int_or_string(bytes: &[u8]) -> Result<Node<'static>, ProtobufError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = utf8(bytes),
            _ => {}
        }
    }
    Ok(if is_text {
        Node::Text(text.into())
    } else {
        Node::Number(number.to_string().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes.
    fn bytes(number: u8, inner: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, inner.len() as u8];
        out.extend_from_slice(inner);
        out
    }

    fn number(field: u8, value: u8) -> Vec<u8> {
        vec![field << 3, value]
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_pod_with_what_is_special() {
        let limits = bytes(
            1,
            &[bytes(1, b"cpu"), bytes(2, &bytes(1, b"100m"))].concat(),
        );
        let probe = bytes(
            1,
            &bytes(2, &bytes(2, &[number(1, 0), number(2, 80)].concat())),
        );
        let container = [bytes(1, b"c"), bytes(8, &limits), bytes(10, &probe)].concat();
        let labels = bytes(11, &[bytes(1, b"a"), bytes(2, b"b")].concat());
        let meta = [bytes(1, b"p"), labels].concat();
        let pod = [bytes(1, &meta), bytes(2, &bytes(2, &container))].concat();
        let node = parse(&envelope("v1", "Pod", &pod)).unwrap();
        assert_eq!(
            node.to_value(),
            serde_json::json!({
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "p", "labels": {"a": "b"}},
                "spec": {"containers": [{
                    "name": "c",
                    "resources": {"limits": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"port": 80}},
                }]},
            })
        );
    }

    #[test]
    fn what_is_not_protobuf_is_refused() {
        assert_eq!(parse(b"{}"), Err(ProtobufError::NoMagic));
        assert_eq!(parse(b"k8s\0\x0a\xff"), Err(ProtobufError::Cut));
        assert!(matches!(
            parse(&envelope("v1", "Nothing", b"")),
            Err(ProtobufError::UnknownKind { .. })
        ));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(raw in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse(&envelope("v1", "Pod", &raw[..raw.len().min(100)]));
            let _ = parse(&[MAGIC, &raw].concat());
        }
    }
}
