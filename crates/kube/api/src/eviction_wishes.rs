//! What a node's agent asks the manager to evict: a list in an annotation of the node's NodeMetric. An agent may write
//! that object and no other node's, so whoever takes over a node can ask for pods of that node only.

use serde::{Deserialize, Serialize};

/// On the NodeMetric of the node.
pub const ANNOTATION: &str = "plimsoll.dev/evict";
/// A list has no more; the oldest ones go first.
pub const MOST: usize = 32;
/// A longer text is none.
const LONGEST: usize = 64 << 10;

/// One pod that should go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// koordlet's name of the feature that asks for it.
    pub feature: String,
    /// For people.
    pub reason: String,
    /// Unix seconds.
    pub at: i64,
}

/// What is no list of wishes is no wish.
pub fn parse(text: &str) -> Vec<Wish> {
    if text.len() > LONGEST {
        return Vec::new();
    }
    let mut wishes: Vec<Wish> = serde_json::from_str(text).unwrap_or_default();
    let older = wishes.len().saturating_sub(MOST);
    wishes.drain(..older);
    wishes
}

/// Puts a wish at the end. Older wishes for the same pod, and those from before `since`, go.
pub fn add(wishes: &mut Vec<Wish>, wish: Wish, since: i64) {
    wishes.retain(|old| old.uid != wish.uid && old.at >= since);
    wishes.push(wish);
    let older = wishes.len().saturating_sub(MOST);
    wishes.drain(..older);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(uid: &str, at: i64) -> Wish {
        Wish {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: format!("pod-{uid}"),
            feature: "BEMemoryEvict".to_owned(),
            reason: "memory".to_owned(),
            at,
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let mut wishes = Vec::new();
        for number in 0..100 {
            add(&mut wishes, wish(&number.to_string(), number), 0);
        }
        assert_eq!((wishes.len(), wishes[0].at), (MOST, 68));
        add(&mut wishes, wish("99", 200), 98);
        let left: Vec<i64> = wishes.iter().map(|wish| wish.at).collect();
        assert_eq!(left, [98, 200]);
        let text = serde_json::to_string(&wishes).unwrap();
        assert_eq!(parse(&text), wishes);
    }

    #[test]
    fn what_is_no_list() {
        for text in ["", "{}", "[1]", "[{\"uid\":\"a\"}]"] {
            assert_eq!(parse(text), [], "{text}");
        }
        let long = format!("[{}]", " ".repeat(LONGEST));
        assert_eq!(parse(&long), []);
    }
}
