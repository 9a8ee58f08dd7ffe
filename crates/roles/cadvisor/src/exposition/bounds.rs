//! How much of what containers call themselves gets onto a page.
//!
//! Every line of a page carries the label names of all containers: one image with ten thousand labels, or one label of a
//! megabyte, would be on each of them. What ordinary containers have is far below these limits.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Label names of a page.
pub const MOST_NAMES: usize = 512;
/// Of one name: longer than any that Kubernetes allows, with what is put before it.
pub const LONGEST_NAME: usize = 352;
/// Of one value.
pub const LONGEST_VALUE: usize = 4096;

/// What was left out of a page the last time its labels were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Label names that no line has.
    pub names: usize,
    /// Values of which only the beginning is there.
    pub values: usize,
}

/// Counts the names of containers' labels and says which are on the page.
#[derive(Debug, Default)]
pub struct Names {
    /// By name, how many containers have it.
    counts: FxHashMap<String, usize>,
    left_out: LeftOut,
}

impl Names {
    pub fn add(&mut self, labels: &BTreeMap<String, String>) {
        for (name, value) in labels {
            match self.counts.get_mut(name) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(name.clone(), 1);
                }
            }
            self.left_out.values += usize::from(value.len() > LONGEST_VALUE);
        }
    }

    /// All of them, if there are few enough; else what does not come from containers, and those that most containers have:
    /// what one container alone brings along does not take the place of what all have.
    pub fn chosen(mut self) -> (BTreeSet<String>, LeftOut) {
        let all = self.counts.len();
        let mut by_count: Vec<(String, usize)> = self.counts.drain().collect();
        by_count.retain(|(name, _)| name.len() <= LONGEST_NAME);
        if by_count.len() > MOST_NAMES {
            by_count.sort_unstable_by(|(a, of_a), (b, of_b)| {
                let before = is_needed(b).cmp(&is_needed(a)).then(of_b.cmp(of_a));
                before.then(a.cmp(b))
            });
            by_count.truncate(MOST_NAMES);
        }
        let chosen: BTreeSet<String> = by_count.into_iter().map(|(name, _)| name).collect();
        self.left_out.names = all - chosen.len();
        (chosen, self.left_out)
    }
}

/// Whose figures they are.
fn is_needed(name: &str) -> bool {
    const OF_PODS: [&str; 4] = [
        "container_label_io_kubernetes_container_name",
        "container_label_io_kubernetes_pod_name",
        "container_label_io_kubernetes_pod_namespace",
        "container_label_io_kubernetes_pod_uid",
    ];
    let of_container = ["container_label_", "container_env_"];
    !of_container.iter().any(|start| name.starts_with(start)) || OF_PODS.contains(&name)
}

/// The beginning of a value, in whole characters.
pub fn cut(value: &str) -> &str {
    &value[..value.floor_char_boundary(LONGEST_VALUE)]
}

/// What is left out, said when it changes.
#[derive(Debug, Default)]
pub struct Said(Mutex<LeftOut>);

impl Said {
    pub fn now(&self) -> LeftOut {
        *self.0.lock()
    }

    pub fn set(&self, left_out: LeftOut) {
        let before = std::mem::replace(&mut *self.0.lock(), left_out);
        let LeftOut { names, values } = left_out;
        // Containers come and go: once it has been said, it is only said again after there was nothing to say.
        if left_out != LeftOut::default() && before == LeftOut::default() {
            tracing::warn!(
                names,
                values,
                most_names = MOST_NAMES,
                longest_value = LONGEST_VALUE,
                "containers have more or longer labels than a page of metrics takes: some names are left out, and values cut \
                 short; see --store_container_labels=false and --whitelisted_container_labels"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: impl IntoIterator<Item = String>) -> BTreeMap<String, String> {
        names
            .into_iter()
            .map(|name| (name, "v".to_owned()))
            .collect()
    }

    #[test]
    fn what_all_have_stays_whatever_one_brings_along() {
        let mut names = Names::default();
        let common = || (0..20).map(|number| format!("container_label_z{number}"));
        for _ in 0..3 {
            names.add(&labels(common()));
        }
        let own = ["id", "name", "container_label_io_kubernetes_pod_uid"].map(String::from);
        names.add(&labels(own.clone()));
        let many = |start: &str| labels((0..10_000).map(|number| format!("{start}{number}")));
        names.add(&many("container_label_a"));
        let (chosen, left_out) = names.chosen();
        assert_eq!(chosen.len(), MOST_NAMES);
        assert!(common().chain(own).all(|name| chosen.contains(&name)));
        assert_eq!(left_out.names, 10_023 - MOST_NAMES);
    }

    #[test]
    fn ordinary_ones_are_all_there() {
        let mut names = Names::default();
        names.add(&labels(
            (0..MOST_NAMES).map(|number| format!("container_label_n{number}")),
        ));
        let (chosen, left_out) = names.chosen();
        assert_eq!((chosen.len(), left_out), (MOST_NAMES, LeftOut::default()));
        let mut names = Names::default();
        names.add(&labels(["n".repeat(LONGEST_NAME + 1), "short".to_owned()]));
        let (chosen, left_out) = names.chosen();
        assert_eq!((chosen.len(), left_out.names), (1, 1));
    }

    #[test]
    fn values_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = format!("x{}", "ä".repeat(LONGEST_VALUE));
        assert_eq!(cut(&long).len(), LONGEST_VALUE - 1);
    }
}
