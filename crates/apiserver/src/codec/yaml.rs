//! YAML bodies. Kubernetes reads YAML 1.1, where `y` and `off` are booleans, and turns it into JSON first.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};

use super::json::Node;

/// The first document as a [`Node`]; the error text is ours, behind Kubernetes' usual prefix.
pub fn parse(text: &str) -> Result<Node<'static>, String> {
    let options = serde_saphyr::options! {
        strict_booleans: false,
    };
    let Tree(node) = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?;
    Ok(node)
}

struct Tree(Node<'static>);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Node<'static>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
        inner.deserialize_any(Self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut object = Vec::new();
        while let Some((Tree(key), Tree(value))) = entries.next_entry()? {
            // JSON's keys are strings, whatever YAML made of them.
            let key = match key {
                Node::Text(text) | Node::Number(text) => text,
                Node::Bool(value) => value.to_string().into(),
                _ => "null".into(),
            };
            object.push((key, value));
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        let node =
            parse("a: 1\nb: [x, \"2\", null, 1.5]\nc:\n  d: yes\n  e: 'yes'\n8080: z\n").unwrap();
        assert_eq!(
            node.to_value(),
            serde_json::json!({"a": 1, "b": ["x", "2", null, 1.5], "c": {"d": true, "e": "yes"}, "8080": "z"})
        );
        assert!(parse("a: [").is_err());
    }
}
