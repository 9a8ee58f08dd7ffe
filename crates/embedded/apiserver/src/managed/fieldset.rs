//! Sets of fields: who owns what. A trie of steps in which every node may be a member, written as FieldsV1.

use serde_json::{Map, Value};

use super::path::Step;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    /// Sorted by step. A node is a member or leads to one.
    nodes: Vec<(Step, Node)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    member: bool,
    below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Of paths of plain fields, each written with dots.
    pub fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let steps: Vec<Step> = path.split('.').map(Step::field).collect();
            set.insert(&steps);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The empty path is the object itself, which nobody owns.
    pub fn insert(&mut self, path: &[Step]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let position = match self.find(first) {
            Ok(found) => found,
            Err(position) => {
                self.nodes
                    .insert(position, (first.clone(), Node::default()));
                position
            }
        };
        let node = &mut self.nodes[position].1;
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    pub fn has(&self, path: &[Step]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        match self.node(first) {
            Some(node) if rest.is_empty() => node.member,
            Some(node) => node.below.has(rest),
            None => false,
        }
    }

    pub fn has_member(&self, step: &Step) -> bool {
        self.node(step).is_some_and(|node| node.member)
    }

    /// What is below `step`; `None` where there is nothing.
    pub fn below(&self, step: &Step) -> Option<&Self> {
        let below = &self.node(step)?.below;
        (!below.is_empty()).then_some(below)
    }

    /// Every step at this level: whether it is a member, and what is below it.
    pub fn steps(&self) -> impl Iterator<Item = (&Step, bool, &Self)> {
        self.nodes
            .iter()
            .map(|(step, node)| (step, node.member, &node.below))
    }

    fn find(&self, step: &Step) -> Result<usize, usize> {
        self.nodes.binary_search_by(|(one, _)| one.cmp(step))
    }

    fn node(&self, step: &Step) -> Option<&Node> {
        self.find(step).ok().map(|found| &self.nodes[found].1)
    }

    /// All members. At each level, members come before what is below any of them. Ends early when `go_on` says so.
    pub fn each_path(&self, mut go_on: impl FnMut(&[Step]) -> bool) {
        self.visit(&mut Vec::new(), &mut go_on);
    }

    fn visit(&self, path: &mut Vec<Step>, go_on: &mut impl FnMut(&[Step]) -> bool) -> bool {
        for (step, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            path.push(step.clone());
            let goes_on = go_on(path);
            path.pop();
            if !goes_on {
                return false;
            }
        }
        for (step, node) in self.nodes.iter().filter(|(_, node)| !node.below.is_empty()) {
            path.push(step.clone());
            let goes_on = node.below.visit(path, go_on);
            path.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }

    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Node {
                member: a.member || b.member,
                below: a.below.union(&b.below),
            },
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => Node::default(),
        })
    }

    /// The union of all, each looked at a few times only.
    pub fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut left = sets.into_iter();
            let mut joined = Vec::with_capacity(left.len().div_ceil(2));
            while let Some(one) = left.next() {
                joined.push(match left.next() {
                    Some(other) => one.union(&other),
                    None => one,
                });
            }
            sets = joined;
        }
        sets.pop().unwrap_or_default()
    }

    pub fn intersection(&self, other: &Self) -> Self {
        // Whichever is smaller says what there may be.
        if other.nodes.len() < self.nodes.len() {
            return other.intersection(self);
        }
        self.reduced_by(other, |a, b| {
            b.map_or_else(Node::default, |b| Node {
                member: a.member && b.member,
                below: a.below.intersection(&b.below),
            })
        })
    }

    pub fn difference(&self, other: &Self) -> Self {
        self.reduced_by(other, |a, b| match b {
            Some(b) => Node {
                member: a.member && !b.member,
                below: a.below.difference(&b.below),
            },
            None => a.clone(),
        })
    }

    /// As `difference`, but with a member of `other` goes all that is below it.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.reduced_by(other, |a, b| match b {
            Some(b) if b.member => Node::default(),
            Some(b) => Node {
                member: a.member,
                below: a.below.recursive_difference(&b.below),
            },
            None => a.clone(),
        })
    }

    /// What is left of each node beside that of `other`. Small sets are held against large ones often, so that the
    /// large one is not walked through.
    fn reduced_by(&self, other: &Self, left: impl Fn(&Node, Option<&Node>) -> Node) -> Self {
        let mut rest = other.nodes.as_slice();
        let nodes = self.nodes.iter().map(|(step, node)| {
            let found = gallop(rest, step);
            rest = &rest[found..];
            let theirs = rest.first().filter(|(one, _)| one == step);
            (step, left(node, theirs.map(|(_, node)| node)))
        });
        let kept = nodes.filter(|(_, node)| !node.is_empty());
        Self {
            nodes: kept.map(|(step, node)| (step.clone(), node)).collect(),
        }
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        let nodes = self.nodes.iter();
        nodes
            .map(|(_, node)| usize::from(node.member) + node.below.count())
            .sum()
    }

    /// Members with no members below them.
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|(step, node)| {
            let node = Node {
                member: node.member && node.below.is_empty(),
                below: node.below.leaves(),
            };
            (step.clone(), node)
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Rebuilds the set with what `change` makes of each step: whether it is a member, and what is below it.
    pub fn map(&self, mut change: impl FnMut(&Step, bool, &Self) -> (bool, Self)) -> Self {
        let nodes = self.nodes.iter().map(|(step, node)| {
            let (member, below) = change(step, node.member, &node.below);
            (step.clone(), Node { member, below })
        });
        Self {
            nodes: nodes.filter(|(_, node)| !node.is_empty()).collect(),
        }
    }

    fn combine(&self, other: &Self, join: impl Fn(Option<&Node>, Option<&Node>) -> Node) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut ours, mut theirs) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (ours.peek(), theirs.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let a = if order.is_le() { ours.next() } else { None };
            let b = if order.is_ge() { theirs.next() } else { None };
            let Some((step, _)) = a.or(b) else { break };
            let node = join(a.map(|(_, node)| node), b.map(|(_, node)| node));
            if !node.is_empty() {
                nodes.push((step.clone(), node));
            }
        }
        Self { nodes }
    }

    /// As FieldsV1.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_fields(false))
    }

    fn to_fields(&self, owned: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if owned && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, node) in &self.nodes {
            let below = node.below.to_fields(node.member);
            fields.insert(step.to_text(), Value::Object(below));
        }
        fields
    }

    /// From FieldsV1. Steps of unknown kinds are left out.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let (set, _) = read(value)?;
        Ok(set)
    }
}

/// Where the step is or would be among sorted nodes. Quick if that is near the front.
fn gallop(nodes: &[(Step, Node)], step: &Step) -> usize {
    let mut end = 1;
    while end < nodes.len() && nodes[end].0 < *step {
        end *= 2;
    }
    let end = end.min(nodes.len());
    nodes[..end].partition_point(|(one, _)| one < step)
}

/// What is below, and whether the node itself is a member: it is where nothing is below it, or a dot says so.
fn read(value: &Value) -> Result<(FieldSet, bool), String> {
    let mut set = FieldSet::new();
    let mut owned = false;
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Ok((set, true)),
        _ => return Err("expected an object".to_owned()),
    };
    for (key, value) in fields {
        if key == "." {
            owned = true;
            continue;
        }
        let Some(step) = Step::parse(key)? else {
            continue;
        };
        let (below, member) = read(value)?;
        set.nodes.push((step, Node { member, below }));
    }
    set.nodes.sort_by(|a, b| a.0.cmp(&b.0));
    set.nodes.dedup_by(|a, b| a.0 == b.0);
    owned |= set.is_empty();
    Ok((set, owned))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_value(&value).unwrap()
    }

    #[test]
    fn a_dot_tells_owned_nodes_from_mere_ways() {
        let text = json!({
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
            "f:spec": {"f:ports": {r#"k:{"port":80}"#: {".": {}, "f:port": {}}}},
        });
        let set = set(text.clone());
        assert!(set.has(&[Step::field("data")]));
        assert!(!set.has(&[Step::field("metadata")]));
        assert!(set.has(&[Step::field("metadata"), Step::field("labels")]));
        assert_eq!(set.to_value(), text);
    }

    #[test]
    fn unknown_steps_are_left_out() {
        let set = set(json!({"f:a": {}, "x:b": {"f:c": {}}}));
        assert_eq!(set, FieldSet::of_fields(&["a"]));
        assert!(FieldSet::from_value(&json!({"a": {}})).is_err());
    }

    #[test]
    fn algebra() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let b = set(json!({"f:a": {"f:b": {}}, "f:d": {}, "f:e": {}}));
        assert_eq!(
            a.union(&b),
            set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}}))
        );
        assert_eq!(
            a.intersection(&b),
            set(json!({"f:a": {"f:b": {}}, "f:d": {}}))
        );
        assert_eq!(a.difference(&b), set(json!({"f:a": {".": {}, "f:c": {}}})));
        assert_eq!(
            a.difference(&FieldSet::of_fields(&["a"])),
            set(json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}))
        );
        assert_eq!(
            a.recursive_difference(&FieldSet::of_fields(&["a"])),
            set(json!({"f:d": {}}))
        );
        assert_eq!(
            a.leaves(),
            set(json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}))
        );
    }

    fn paths(set: &FieldSet) -> Vec<Vec<Step>> {
        let mut paths = Vec::new();
        set.each_path(|path| {
            paths.push(path.to_vec());
            true
        });
        assert_eq!(paths.len(), set.count());
        paths
    }

    #[test]
    fn paths_name_members_before_what_is_below() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:d": {}}));
        let shown: Vec<String> = paths(&a)
            .iter()
            .map(|path| super::super::path::display_path(path))
            .collect();
        assert_eq!(shown, [".a", ".d", ".a.b"]);
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            "[a-c]{1,2}".prop_map(|name| Step::field(&name)),
            ("[a-b\"<\\\\]{0,2}", 0..3i64).prop_map(|(name, port)| {
                Step::key(vec![
                    ("name".into(), name.into()),
                    ("port".into(), port.into()),
                ])
            }),
            "[a-b\"\n]{0,2}".prop_map(|text| Step::Value(text.into())),
            (-5..5i64).prop_map(Step::Index),
        ]
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let path = prop::collection::vec(any_step(), 1..4);
        prop::collection::vec(path, 0..12).prop_map(|paths| {
            let mut set = FieldSet::new();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn text_and_back(set in any_set()) {
            prop_assert_eq!(FieldSet::from_value(&set.to_value()).unwrap(), set);
        }

        #[test]
        fn members_are_what_paths_say(set in any_set()) {
            let mut again = FieldSet::new();
            for path in paths(&set) {
                prop_assert!(set.has(&path));
                again.insert(&path);
            }
            prop_assert_eq!(again, set);
        }

        #[test]
        fn laws_of_sets(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            for path in paths(&a.union(&b)) {
                prop_assert_eq!(a.difference(&b).has(&path), a.has(&path) && !b.has(&path));
            }
            prop_assert_eq!(a.recursive_difference(&b).union(&a.difference(&b)), a.difference(&b));
            let both = a.union(&b);
            prop_assert_eq!(FieldSet::union_all(vec![a, b.clone(), both.clone(), b]), both);
        }
    }
}
