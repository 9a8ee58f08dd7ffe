//! What holds for the cluster, and for kinds of nodes: `{…, nodeConfigs: [{nodeSelector, …}]}`.

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::label_selector::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

/// Which nodes an entry is for.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    pub name: String,
    pub node_selector: Option<LabelSelector>,
}

impl Profile {
    /// Without a selector an entry is for no node.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector
            .as_ref()
            .is_some_and(|selector| selector.matches(labels))
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ByNode<T> {
    pub cluster: T,
    nodes: Vec<(Profile, T)>,
}

impl<T> ByNode<T> {
    /// The same for all nodes.
    pub fn everywhere(cluster: T) -> Self {
        Self {
            cluster,
            nodes: Vec::new(),
        }
    }

    /// Each entry over what the cluster's part says, and that over the defaults. A bad one is refused as a whole, with a
    /// reason that says where.
    pub fn parse(
        text: &str,
        defaults: Value,
        checked: impl Fn(Value) -> Result<T, String>,
    ) -> Result<Self, String> {
        let mut document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let fields = document.as_object_mut().ok_or("must be an object")?;
        let entries = match fields.remove("nodeConfigs") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("nodeConfigs must be a list".to_owned()),
        };
        let mut general = defaults;
        json::merge(&mut general, &document);
        let cluster = checked(general.clone())?;
        let mut nodes = Vec::new();
        for (position, entry) in entries.into_iter().enumerate() {
            let at = |problem: String| format!("nodeConfigs[{position}]: {problem}");
            let profile: Profile =
                serde_json::from_value(entry.clone()).map_err(|error| at(error.to_string()))?;
            let selector = profile.node_selector.as_ref();
            if let Some(problem) = selector.and_then(LabelSelector::problem) {
                return Err(at(format!("nodeSelector: {problem}")));
            }
            let mut merged = general.clone();
            json::merge(&mut merged, &entry);
            nodes.push((profile, checked(merged).map_err(at)?));
        }
        Ok(Self { cluster, nodes })
    }

    /// The first entry that is for a node, else what holds for all.
    pub fn for_node(&self, labels: &BTreeMap<String, String>) -> &T {
        self.nodes
            .iter()
            .find(|(profile, _)| profile.matches(labels))
            .map_or(&self.cluster, |(_, merged)| merged)
    }
}
