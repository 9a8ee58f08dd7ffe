//! Bodies that are deep, wide, long, doubled or wrongly typed, in JSON, YAML and protobuf.

use fastrand::Rng;

use super::class::{JSON, PROTOBUF, Shot, YAML};
use super::made_up::{depth, nested, nested_fields, object, pick, pointers, with_raw};

pub fn shot(random: &mut Rng, number: u64) -> Shot {
    let (path, object) = object(random, number);
    let places = pointers(&object);
    let place = places[random.usize(..places.len())].clone();
    match random.u8(..9) {
        // Deep, somewhere.
        0 | 1 => {
            let depth = depth(random);
            let raw = nested(random, depth);
            let body = with_raw(&object, &place, &raw);
            Shot::new("POST", path, json_or_yaml(random), body.into_bytes())
        }
        2 => {
            let fields = nested_fields(depth(random));
            let managed = format!(
                "[{{\"manager\":\"m\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{fields}}}]"
            );
            let mut object = object;
            object["metadata"]["managedFields"] = serde_json::json!([]);
            let body = with_raw(&object, "/metadata/managedFields", &managed);
            Shot::new("POST", path, JSON, body.into_bytes())
        }
        // Deep as a whole.
        3 => {
            let depth = depth(random);
            let body = nested(random, depth);
            Shot::new("POST", path, json_or_yaml(random), body.into_bytes())
        }
        // Wide: keys that nobody knows, or the same again and again.
        4 | 5 => {
            let count = pick(random, &[10, 1_000, 30_000, 100_000]);
            let same = random.bool();
            let mut raw = String::from("{");
            for index in 0..count {
                let comma = if index == 0 { "" } else { "," };
                let key = if same { index % 3 } else { index };
                raw.push_str(&format!("{comma}\"k{key}\":\"v\""));
            }
            raw.push('}');
            let body = if random.bool() {
                with_raw(&object, &place, &raw)
            } else {
                raw
            };
            let strict = pick(random, &["Strict", "Warn", "Ignore"]);
            let path = format!("{path}?fieldValidation={strict}");
            Shot::new("POST", path, json_or_yaml(random), body.into_bytes())
        }
        // Long: lists of the same.
        6 => {
            let count = pick(random, &[100, 5_000, 50_000]);
            let item = pick(
                random,
                &[
                    "{}",
                    "\"x\"",
                    "{\"name\":\"c\"}",
                    "{\"containerPort\":80}",
                    "1",
                    "[]",
                ],
            );
            let raw = format!("[{}{item}]", format!("{item},").repeat(count));
            let body = with_raw(&object, &place, &raw);
            Shot::new("POST", path, json_or_yaml(random), body.into_bytes())
        }
        // YAML's own ways of being large.
        7 => {
            let body = match random.u8(..4) {
                0 => format!("a: &a [{}]\nb: [*a, *a]\n", "x,".repeat(2_000)),
                1 => (0..30).fold("a0: &a0 [x,x]\n".to_owned(), |text, level| {
                    format!(
                        "{text}a{}: &a{} [*a{level},*a{level}]\n",
                        level + 1,
                        level + 1
                    )
                }),
                2 => "- ".repeat(depth(random)) + "x",
                _ => (0..2_000)
                    .map(|level| format!("{}a:\n", " ".repeat(level)))
                    .collect(),
            };
            Shot::new("POST", path, YAML, body.into_bytes())
        }
        // Messages in messages in messages.
        _ => {
            let depth = depth(random).min(20_000);
            let field = pick(random, &[0x0a_u8, 0x12, 0x1a, 0x22]);
            let mut body = vec![b'k', b'8', b's', 0];
            body.extend(messages(field, depth));
            Shot::new("POST", path, PROTOBUF, body)
        }
    }
}

fn json_or_yaml(random: &mut Rng) -> &'static str {
    if random.u8(..3) == 0 { YAML } else { JSON }
}

/// From the inside out, the lengths first: writing it inside out would be quadratic for us.
fn messages(field: u8, depth: usize) -> Vec<u8> {
    let mut lengths = Vec::with_capacity(depth);
    let mut length = 0_usize;
    for _ in 0..depth {
        lengths.push(length);
        length += 1 + varint(length).len();
    }
    let mut bytes = Vec::with_capacity(length);
    for length in lengths.iter().rev() {
        bytes.push(field);
        bytes.extend(varint(*length));
    }
    bytes
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_each_other_to_the_end() {
        let bytes = messages(0x0a, 300);
        let mut rest: &[u8] = &bytes;
        for _ in 0..300 {
            assert_eq!(rest[0], 0x0a);
            let mut length = 0_usize;
            let mut used = 1;
            for (shift, byte) in rest[1..].iter().enumerate() {
                used += 1;
                length |= usize::from(byte & 0x7f) << (7 * shift);
                if byte & 0x80 == 0 {
                    break;
                }
            }
            assert_eq!(rest.len() - used, length);
            rest = &rest[used..];
        }
        assert!(rest.is_empty());
    }
}
