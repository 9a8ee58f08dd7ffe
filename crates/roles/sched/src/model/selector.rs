//! Selectors of labels and of nodes.

use super::symbol::{Names, Symbol};

/// Key-value pairs, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Box<[(Symbol, Symbol)]>);

impl Labels {
    pub fn get(&self, key: Symbol) -> Option<Symbol> {
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        self.0.get(at).map(|(_, value)| *value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Symbol, Symbol)> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Symbol, Symbol)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Symbol, Symbol)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        pairs.dedup_by_key(|(key, _)| *key);
        Self(pairs.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    pub key: Symbol,
    pub operator: Operator,
    pub values: Box<[Symbol]>,
}

impl Requirement {
    pub fn equals(key: Symbol, value: Symbol) -> Self {
        Self {
            key,
            operator: Operator::In,
            values: [value].into(),
        }
    }

    pub fn matches(&self, labels: &Labels, names: &Names) -> bool {
        let value = labels.get(self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(&value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(&value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value, names, |value, bound| value > bound),
            Operator::Lt => self.compare(value, names, |value, bound| value < bound),
        }
    }

    fn compare(
        &self,
        value: Option<Symbol>,
        names: &Names,
        holds: impl Fn(i64, i64) -> bool,
    ) -> bool {
        let number = |symbol: Symbol| names.text(symbol).parse::<i64>().ok();
        let bound = self.values.first().copied().and_then(number);
        match (value.and_then(number), bound) {
            (Some(value), Some(bound)) => holds(value, bound),
            _ => false,
        }
    }
}

/// Which pods: all requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// An absent selector, which selects nothing.
    Nothing,
    /// Without any, everything.
    All(Box<[Requirement]>),
}

impl Selector {
    pub fn matches(&self, labels: &Labels, names: &Names) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements
                .iter()
                .all(|requirement| requirement.matches(labels, names)),
        }
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// With further requirements; nothing stays nothing.
    pub fn and(self, more: impl IntoIterator<Item = Requirement>) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(requirements) => {
                let mut all: Vec<_> = more.into_iter().collect();
                all.extend(requirements);
                Self::All(all.into())
            }
        }
    }
}

/// One alternative of a node selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeTerm {
    pub expressions: Box<[Requirement]>,
    /// On `metadata.name` only; values are node names.
    pub fields: Box<[Requirement]>,
}

impl NodeTerm {
    /// An empty term matches no node.
    pub fn matches(&self, node: Symbol, labels: &Labels, names: &Names) -> bool {
        if self.expressions.is_empty() && self.fields.is_empty() {
            return false;
        }
        let fields = self.fields.iter().all(|field| match field.operator {
            Operator::In => field.values.contains(&node),
            Operator::NotIn => !field.values.contains(&node),
            _ => false,
        });
        fields
            && self
                .expressions
                .iter()
                .all(|requirement| requirement.matches(labels, names))
    }
}

/// Where a pod may go: its node selector and its required node affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    pub labels: Box<[(Symbol, Symbol)]>,
    /// `None`: no required affinity. `Some` of nothing: no node at all.
    pub terms: Option<Box<[NodeTerm]>>,
}

impl NodeSelector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    pub fn matches(&self, node: Symbol, labels: &Labels, names: &Names) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| labels.get(*key) == Some(*value))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.matches(node, labels, names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(
        names: &mut Names,
        key: &str,
        operator: Operator,
        values: &[&str],
    ) -> Requirement {
        Requirement {
            key: names.intern(key),
            operator,
            values: values.iter().map(|value| names.intern(value)).collect(),
        }
    }

    #[test]
    fn operators() {
        let mut names = Names::default();
        let labels: Labels = [("tier", "web"), ("cores", "16")]
            .map(|(key, value)| (names.intern(key), names.intern(value)))
            .into_iter()
            .collect();
        for (key, operator, values, expected) in [
            ("tier", Operator::In, &["db", "web"][..], true),
            ("tier", Operator::In, &["db"], false),
            ("absent", Operator::In, &["db"], false),
            ("tier", Operator::NotIn, &["web"], false),
            ("absent", Operator::NotIn, &["web"], true),
            ("tier", Operator::Exists, &[], true),
            ("absent", Operator::Exists, &[], false),
            ("absent", Operator::DoesNotExist, &[], true),
            ("cores", Operator::Gt, &["15"], true),
            ("cores", Operator::Gt, &["16"], false),
            ("cores", Operator::Lt, &["17"], true),
            ("tier", Operator::Lt, &["17"], false),
            ("cores", Operator::Lt, &["many"], false),
        ] {
            let requirement = requirement(&mut names, key, operator, values);
            assert_eq!(
                requirement.matches(&labels, &names),
                expected,
                "{key} {operator:?} {values:?}"
            );
        }
    }

    #[test]
    fn nothing_and_everything() {
        let names = Names::default();
        let labels = Labels::default();
        assert!(!Selector::Nothing.matches(&labels, &names));
        assert!(Selector::All([].into()).matches(&labels, &names));
        assert!(Selector::All([].into()).is_empty());
        assert!(!Selector::Nothing.is_empty());
        assert!(!NodeTerm::default().matches(names.known.empty, &labels, &names));
        assert!(NodeSelector::default().matches(names.known.empty, &labels, &names));
    }
}
