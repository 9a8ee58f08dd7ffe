//! Counts of pods by topology domain, kept as pods come and go.
//!
//! Spreading and affinity ask: how many pods like these are where that node is? A [`Tally`] holds the answer for one
//! kind of pods and one topology key, by domain, so that the question costs two array reads a node.

use rustc_hash::FxHashMap;

use super::bits::BitSet;
use super::ids::{EligibilityId, LabelClassId, MatcherId, NodeId, TallyId, TopologyId};
use super::topology::Topologies;
use crate::model::{
    Effect, Labels, Names, Node, NodeSelector, PodMatcher, Selector, Symbol, Taint, Toleration,
};

/// Pods that all parts match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Matcher {
    pub parts: Box<[PodMatcher]>,
    /// Pods that are ending do not count.
    pub live_only: bool,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Pods that match.
    Matched,
    /// Pods with a required anti-affinity to pods that match.
    Repelling,
    /// Pods with a required affinity to pods that match.
    Attached,
    /// Weights of the preferences that pods have about pods that match.
    Preferring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TallyKey {
    pub matcher: MatcherId,
    pub source: Source,
    pub topology: TopologyId,
    /// Only nodes that are eligible count.
    pub eligibility: Option<EligibilityId>,
}

#[derive(Debug)]
pub struct Tally {
    pub key: TallyKey,
    counts: Vec<i32>,
    total: i64,
    domains: Option<Domains>,
}

/// Which domains have an eligible node, and how many of them have each count.
#[derive(Debug, Default)]
struct Domains {
    eligible_nodes: Vec<u32>,
    by_count: Vec<u32>,
    number: u32,
}

impl Domains {
    fn exists(&self, domain: usize) -> bool {
        self.eligible_nodes
            .get(domain)
            .is_some_and(|nodes| *nodes > 0)
    }

    fn shift(&mut self, count: i32, by: i32) {
        let index = usize::try_from(count).unwrap_or(0);
        if index >= self.by_count.len() {
            self.by_count.resize(index + 1, 0);
        }
        self.by_count[index] = self.by_count[index].wrapping_add_signed(by);
    }
}

impl Tally {
    pub fn count(&self, domain: u32) -> i32 {
        self.counts.get(domain as usize).copied().unwrap_or(0)
    }

    /// The column itself, for loops over nodes.
    pub fn counts(&self) -> &[i32] {
        &self.counts
    }

    /// Over all nodes that lie in a domain.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The smallest count of a domain, and how many domains there are.
    pub fn least(&self) -> (i32, u32) {
        let Some(domains) = &self.domains else {
            return (0, 0);
        };
        let least = domains.by_count.iter().position(|number| *number > 0);
        (least.unwrap_or(0) as i32, domains.number)
    }

    fn add(&mut self, domain: u32, by: i32) {
        let index = domain as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        let before = self.counts[index];
        self.counts[index] = before + by;
        self.total += i64::from(by);
        if let Some(domains) = &mut self.domains
            && domains.exists(index)
        {
            domains.shift(before, -1);
            domains.shift(before + by, 1);
        }
    }

    fn eligible(&mut self, domain: u32, enters: bool) {
        let count = self.count(domain);
        let Some(domains) = &mut self.domains else {
            return;
        };
        let index = domain as usize;
        if index >= domains.eligible_nodes.len() {
            domains.eligible_nodes.resize(index + 1, 0);
        }
        let nodes = &mut domains.eligible_nodes[index];
        if enters {
            *nodes += 1;
            if *nodes == 1 {
                domains.number += 1;
                domains.shift(count, 1);
            }
        } else {
            *nodes -= 1;
            if *nodes == 0 {
                domains.number -= 1;
                domains.shift(count, -1);
            }
        }
    }
}

/// Which nodes a spread constraint looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EligibilityRule {
    pub nodes: Option<NodeSelector>,
    pub tolerations: Option<Box<[Toleration]>>,
    /// Labels that must be there.
    pub keys: Box<[Symbol]>,
}

impl EligibilityRule {
    pub fn allows(&self, node: &Node, names: &Names) -> bool {
        self.keys.iter().all(|key| node.labels.get(*key).is_some())
            && self
                .nodes
                .as_ref()
                .is_none_or(|nodes| nodes.matches(node.name, &node.labels, names))
            && self
                .tolerations
                .as_ref()
                .is_none_or(|tolerations| tolerated(tolerations, &node.taints))
    }
}

/// Whether no taint keeps new pods away.
pub fn tolerated(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .all(|taint| {
            tolerations
                .iter()
                .any(|toleration| toleration.tolerates(taint))
        })
}

/// Pods with equal namespace and labels.
#[derive(Debug)]
pub struct LabelClass {
    pub namespace: Symbol,
    pub labels: Labels,
    pub terminating: bool,
    /// Tallies of [`Source::Matched`] that count these pods.
    counted: Vec<TallyId>,
    /// Tallies of the other sources, whose terms are about these pods.
    targeted: Vec<TallyId>,
    /// Where they are.
    nodes: FxHashMap<NodeId, u32>,
}

impl LabelClass {
    pub fn targeted(&self) -> &[TallyId] {
        &self.targeted
    }
}

#[derive(Debug, Default)]
pub struct Census {
    pub topologies: Topologies,
    matchers: Vec<Matcher>,
    matcher_ids: FxHashMap<Matcher, MatcherId>,
    tallies: Vec<Tally>,
    tally_ids: FxHashMap<TallyKey, TallyId>,
    rules: Vec<(EligibilityRule, BitSet)>,
    rule_ids: FxHashMap<EligibilityRule, EligibilityId>,
    label_classes: Vec<LabelClass>,
    label_ids: FxHashMap<(Symbol, Labels, bool), LabelClassId>,
}

/// The labels of namespaces, for selectors of namespaces.
pub type Namespaces = FxHashMap<Symbol, Labels>;

fn matches(matcher: &Matcher, class: &LabelClass, namespaces: &Namespaces, names: &Names) -> bool {
    if matcher.live_only && class.terminating {
        return false;
    }
    let none = Labels::default();
    matcher.parts.iter().all(|part| {
        let labels = namespaces.get(&class.namespace).unwrap_or(&none);
        let here = part.namespaces.contains(&class.namespace)
            || part.namespace_selector.matches(labels, names);
        here && part.selector.matches(&class.labels, names)
    })
}

impl Census {
    pub fn tally(&self, id: TallyId) -> &Tally {
        &self.tallies[id.index()]
    }

    pub fn label_class(&self, id: LabelClassId) -> &LabelClass {
        &self.label_classes[id.index()]
    }

    pub fn matches(
        &self,
        matcher: MatcherId,
        class: LabelClassId,
        namespaces: &Namespaces,
        names: &Names,
    ) -> bool {
        matches(
            &self.matchers[matcher.index()],
            self.label_class(class),
            namespaces,
            names,
        )
    }

    pub fn matcher(&mut self, matcher: Matcher) -> MatcherId {
        if let Some(id) = self.matcher_ids.get(&matcher) {
            return *id;
        }
        let id = MatcherId::from_index(self.matchers.len());
        self.matchers.push(matcher.clone());
        self.matcher_ids.insert(matcher, id);
        id
    }

    pub fn eligibility<'a>(
        &mut self,
        rule: EligibilityRule,
        nodes: impl Iterator<Item = (NodeId, &'a Node)>,
        names: &Names,
    ) -> EligibilityId {
        if let Some(id) = self.rule_ids.get(&rule) {
            return *id;
        }
        let id = EligibilityId::from_index(self.rules.len());
        let mut bits = BitSet::default();
        for (node, object) in nodes {
            bits.set(node.index(), rule.allows(object, names));
        }
        self.rules.push((rule.clone(), bits));
        self.rule_ids.insert(rule, id);
        id
    }

    /// Starts to count, with what is there already. Pods of the other sources are counted by whoever places them.
    pub fn follow(
        &mut self,
        key: TallyKey,
        nodes: impl Iterator<Item = NodeId>,
        namespaces: &Namespaces,
        names: &Names,
    ) -> TallyId {
        if let Some(id) = self.tally_ids.get(&key) {
            return *id;
        }
        let id = TallyId::from_index(self.tallies.len());
        let mut tally = Tally {
            key,
            counts: Vec::new(),
            total: 0,
            domains: key.eligibility.map(|_| Domains::default()),
        };
        let topology = self.topologies.get(key.topology);
        let eligible = key.eligibility.map(|id| &self.rules[id.index()].1);
        let counts = |node: NodeId| eligible.is_none_or(|bits| bits.contains(node.index()));
        if eligible.is_some() {
            for node in nodes.filter(|node| counts(*node)) {
                if let Some(domain) = topology.domain(node) {
                    tally.eligible(domain, true);
                }
            }
        }
        let matcher = &self.matchers[key.matcher.index()];
        for class in &mut self.label_classes {
            if !matches(matcher, class, namespaces, names) {
                continue;
            }
            if key.source != Source::Matched {
                class.targeted.push(id);
                continue;
            }
            class.counted.push(id);
            for (node, number) in &class.nodes {
                if counts(*node)
                    && let Some(domain) = topology.domain(*node)
                {
                    tally.add(domain, *number as i32);
                }
            }
        }
        self.tallies.push(tally);
        self.tally_ids.insert(key, id);
        id
    }

    pub fn label_class_of(
        &mut self,
        namespace: Symbol,
        labels: &Labels,
        terminating: bool,
        namespaces: &Namespaces,
        names: &Names,
    ) -> LabelClassId {
        let key = (namespace, labels.clone(), terminating);
        if let Some(id) = self.label_ids.get(&key) {
            return *id;
        }
        let id = LabelClassId::from_index(self.label_classes.len());
        let mut class = LabelClass {
            namespace,
            labels: labels.clone(),
            terminating,
            counted: Vec::new(),
            targeted: Vec::new(),
            nodes: FxHashMap::default(),
        };
        for (index, tally) in self.tallies.iter().enumerate() {
            let matcher = &self.matchers[tally.key.matcher.index()];
            if matches(matcher, &class, namespaces, names) {
                let list = match tally.key.source {
                    Source::Matched => &mut class.counted,
                    _ => &mut class.targeted,
                };
                list.push(TallyId::from_index(index));
            }
        }
        self.label_classes.push(class);
        self.label_ids.insert(key, id);
        id
    }

    /// A pod came to a node (`by` is 1) or left it (-1).
    pub fn count(&mut self, class: LabelClassId, owned: &[(TallyId, i32)], node: NodeId, by: i32) {
        let class = &mut self.label_classes[class.index()];
        let here = class.nodes.entry(node).or_insert(0);
        *here = here.wrapping_add_signed(by);
        if *here == 0 {
            class.nodes.remove(&node);
        }
        let counted = class.counted.iter().map(|id| (*id, 1));
        for (id, weight) in counted.chain(owned.iter().copied()) {
            let tally = &mut self.tallies[id.index()];
            if let Some(rule) = tally.key.eligibility
                && !self.rules[rule.index()].1.contains(node.index())
            {
                continue;
            }
            if let Some(domain) = self.topologies.get(tally.key.topology).domain(node) {
                tally.add(domain, by * weight);
            }
        }
    }

    /// A node is there from now on. Its pods are counted afterwards.
    pub fn enter(&mut self, id: NodeId, node: &Node, names: &Names) {
        self.topologies.enter(id, &node.labels);
        for (rule, bits) in &mut self.rules {
            bits.set(id.index(), rule.allows(node, names));
        }
        self.count_node(id, true);
    }

    /// A node is no longer there. Its pods have been taken off before.
    pub fn leave(&mut self, id: NodeId, node: &Node) {
        self.count_node(id, false);
        for (_, bits) in &mut self.rules {
            bits.set(id.index(), false);
        }
        self.topologies.leave(id, &node.labels);
    }

    fn count_node(&mut self, id: NodeId, enters: bool) {
        for tally in &mut self.tallies {
            let Some(rule) = tally.key.eligibility else {
                continue;
            };
            if self.rules[rule.index()].1.contains(id.index())
                && let Some(domain) = self.topologies.get(tally.key.topology).domain(id)
            {
                tally.eligible(domain, enters);
            }
        }
    }

    /// Whether some term selects namespaces by labels.
    pub fn asks_for_namespace_labels(&self) -> bool {
        self.matchers.iter().flat_map(|matcher| &matcher.parts).any(|part| {
            matches!(&part.namespace_selector, Selector::All(requirements) if !requirements.is_empty())
        })
    }

    pub fn tally_count(&self) -> usize {
        self.tallies.len()
    }
}
