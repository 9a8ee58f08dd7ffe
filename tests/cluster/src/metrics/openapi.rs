//! OpenAPI in protobuf without its prose, which is everybody's own.

/// A sort of message: its name, the fields that are left out, and which others are messages of which sort.
type Sort = (&'static str, &'static [u64], &'static [(u64, &'static str)]);

const SORTS_2: [Sort; 22] = [
    (
        "Document",
        &[],
        &[
            (2, "Info"),
            (8, "Paths"),
            (9, "Schemas"),
            (10, "Parameters"),
        ],
    ),
    // Its version, too, is everybody's own.
    ("Info", &[2, 3], &[]),
    ("Paths", &[], &[(2, "NamedPath")]),
    ("NamedPath", &[], &[(2, "Path")]),
    ("Path", &[], &[(2, "Operation"), (9, "ParametersItem")]),
    (
        "Operation",
        &[3],
        &[(8, "ParametersItem"), (9, "Responses")],
    ),
    ("ParametersItem", &[], &[(1, "Parameter")]),
    ("Parameter", &[], &[(1, "BodyParameter"), (2, "Other")]),
    ("BodyParameter", &[1], &[(5, "Schema")]),
    (
        "Other",
        &[],
        &[(1, "Plain"), (2, "Plain"), (3, "Plain"), (4, "Plain")],
    ),
    ("Plain", &[3], &[]),
    ("Parameters", &[], &[(1, "NamedParameter")]),
    ("NamedParameter", &[], &[(2, "Parameter")]),
    ("Responses", &[], &[(1, "NamedResponse")]),
    ("NamedResponse", &[], &[(2, "ResponseValue")]),
    ("ResponseValue", &[], &[(1, "Response")]),
    ("Response", &[1], &[(2, "SchemaItem")]),
    ("SchemaItem", &[], &[(1, "Schema")]),
    ("Schemas", &[], &[(1, "NamedSchema")]),
    ("NamedSchema", &[], &[(2, "Schema")]),
    (
        "Schema",
        &[4],
        &[
            (21, "Items"),
            (23, "Items"),
            (24, "Schema"),
            (25, "Schemas"),
        ],
    ),
    ("Items", &[], &[(1, "Schema")]),
];

const SORTS_3: [Sort; 20] = [
    (
        "Document",
        &[],
        &[(2, "Info"), (4, "Paths"), (5, "Components")],
    ),
    ("Info", &[2, 6], &[]),
    ("Paths", &[], &[(1, "NamedPath")]),
    ("NamedPath", &[], &[(2, "Path")]),
    ("Path", &[3], &[(4, "Operation"), (13, "Parameters")]),
    ("Operation", &[3], &[(6, "Parameters"), (8, "Responses")]),
    ("Parameters", &[], &[(1, "Parameter")]),
    ("Parameter", &[3], &[(10, "Item")]),
    (
        "Responses",
        &[],
        &[(1, "ResponseItem"), (2, "NamedResponse")],
    ),
    ("NamedResponse", &[], &[(2, "ResponseItem")]),
    ("ResponseItem", &[], &[(1, "Response")]),
    ("Response", &[1], &[(3, "Contents")]),
    ("Contents", &[], &[(1, "NamedContent")]),
    ("NamedContent", &[], &[(2, "Content")]),
    ("Content", &[], &[(1, "Item")]),
    ("Components", &[], &[(1, "Schemas")]),
    ("Schemas", &[], &[(1, "NamedSchema")]),
    ("NamedSchema", &[], &[(2, "Item")]),
    ("Item", &[], &[(1, "Schema")]),
    (
        "Schema",
        &[34],
        &[
            (26, "Item"),
            (27, "Item"),
            (28, "Item"),
            (30, "Items"),
            (31, "Schemas"),
            (32, "Items"),
        ],
    ),
];

/// `None`: this is no such document.
pub fn without_prose(path: &str, document: &[u8]) -> Option<Vec<u8>> {
    let sorts: &[Sort] = match path.starts_with("/openapi/v2") {
        true => &SORTS_2,
        false => &SORTS_3,
    };
    strip(sorts, "Document", document)
}

fn strip(sorts: &[Sort], name: &str, mut rest: &[u8]) -> Option<Vec<u8>> {
    // Items of version 3 hold what other places hold directly.
    let wrapped: Sort = ("Items", &[], &[(1, "Item")]);
    let sort = sorts.iter().find(|(sort, ..)| *sort == name);
    let (_, left_out, inner) = sort.unwrap_or(&wrapped);
    let mut out = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        let key = varint(&mut rest)?;
        let field = key >> 3;
        let value = match key & 7 {
            0 => {
                varint(&mut rest)?;
                None
            }
            1 => {
                rest = rest.get(8..)?;
                None
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(value)
            }
            _ => return None,
        };
        if left_out.contains(&field) {
            continue;
        }
        let sort = inner.iter().find(|(number, _)| *number == field);
        match (value, sort) {
            (Some(value), Some((_, sort))) => {
                let value = strip(sorts, sort, value)?;
                put(&mut out, key);
                put(&mut out, value.len() as u64);
                out.extend_from_slice(&value);
            }
            _ => out.extend_from_slice(&start[..start.len() - rest.len()]),
        }
    }
    Some(out)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_go_and_all_else_stays() {
        // A schema by the name A, described as "xyz", that is an object.
        let schema = b"\x22\x03xyz\xb2\x01\x08\x0a\x06object";
        let mut document = b"\x0a\x032.0\x4a\x17\x0a\x15\x0a\x01A\x12\x10".to_vec();
        document.extend_from_slice(schema);
        let stripped = without_prose("/openapi/v2", &document).unwrap();
        assert_eq!(
            stripped,
            b"\x0a\x032.0\x4a\x12\x0a\x10\x0a\x01A\x12\x0b\xb2\x01\x08\x0a\x06object"
        );
        assert_eq!(without_prose("/openapi/v2", b"\x4a\x7f"), None);
    }
}
