//! A whole JSON body as one value, with the fields that were given more than once.

use serde_json::Value;

use super::json::Node;

#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Of duplicate fields the last one counts.
    pub value: Value,
    /// What strict decoding has against the document itself.
    pub complaints: Vec<String>,
}

impl Document {
    /// The error is the text of Go's decoder. Broken UTF-8 is replaced.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(body);
        let node = Node::parse(&text).map_err(|error| error.to_string())?;
        if let Some(digits) = beyond_float(&node) {
            return Err(format!(
                "json: cannot unmarshal number {digits} into Go value of type float64"
            ));
        }
        Ok(Self {
            value: node.to_value(),
            complaints: node.duplicates(),
        })
    }
}

/// The first number that no float can hold.
fn beyond_float<'a>(node: &'a Node<'_>) -> Option<&'a str> {
    match node {
        Node::Number(digits) => {
            let infinite = digits.parse::<f64>().is_ok_and(f64::is_infinite);
            infinite.then_some(digits.as_ref())
        }
        Node::List(items) => items.iter().find_map(beyond_float),
        Node::Object(entries) => entries.iter().find_map(|(_, value)| beyond_float(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_noted_and_the_last_counts() {
        let text = br#"{"data":{"k":"1","k":"2"},"l":[{"a":1,"a":2,"a":3}]}"#;
        let document = Document::parse(text).unwrap();
        assert_eq!(document.value, json!({"data": {"k": "2"}, "l": [{"a": 3}]}));
        assert_eq!(
            document.complaints,
            ["duplicate field \"data.k\"", "duplicate field \"l[0].a\""]
        );
    }

    #[test]
    fn broken_text_is_replaced() {
        let document = Document::parse(b"[\"\\ud800x\", \"\\ud83d\\ude00\", \"a\xffb\"]").unwrap();
        assert_eq!(
            document.value,
            json!(["\u{fffd}x", "\u{1f600}", "a\u{fffd}b"])
        );
    }

    #[test]
    fn numbers_stay_whole_where_they_fit() {
        let text = b"[1, -9223372036854775808, 9223372036854775808, 1.0]";
        let document = Document::parse(text).unwrap();
        assert!(document.value[1].is_i64());
        assert!(document.value[2].is_f64());
        assert!(document.value[3].is_f64());
        assert_eq!(
            Document::parse(b"1e999").unwrap_err(),
            "json: cannot unmarshal number 1e999 into Go value of type float64"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60)) {
            let _ = Document::parse(&bytes);
        }
    }
}
