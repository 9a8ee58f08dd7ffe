//! What plugins say about a pod before they look at nodes.

use super::Engine;
use crate::cluster::{Cluster, NodeId};
use crate::framework::diagnosis::Diagnosis;
use crate::framework::judge::Subject;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::framework::state::{CycleState, PreFilter};
use crate::framework::status::{Code, Refusal};
use crate::framework::stopwatch::{Ending, Point};
use crate::model::Symbol;
use crate::plugins;

impl Engine {
    /// Asks the plugins about the pod. `Ok(None)`: all nodes come into question.
    pub(super) fn pre_filter(
        &mut self,
        cluster: &mut Cluster,
        subject: &Subject,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<Option<Vec<NodeId>>, Refusal> {
        let mut wanted: Option<Vec<Symbol>> = None;
        let mut limiting = PluginSet::EMPTY;
        let mut remembered = None;
        for at in 0..self.profiles[subject.profile].pre_filter.len() {
            let plugin = self.profiles[subject.profile].pre_filter[at];
            if !plugins::has_pre_filter(plugin) {
                continue;
            }
            self.plans.prepare(
                plugin,
                cluster,
                &self.profiles[subject.profile],
                subject.profile,
                subject.class,
            );
            let began = self.stopwatch.now();
            let context = subject.context(cluster, &self.profiles);
            let answer = plugins::pre_filter(
                plugin,
                &context,
                &self.plans,
                subject.class,
                subject.profile,
                state,
            );
            let ending = match &answer {
                PreFilter::Pass | PreFilter::Nodes(_) => Ending::Success,
                PreFilter::Skip => Ending::Skip,
                PreFilter::Reject(refusal) => refusal.code.into(),
            };
            let point = Point::PreFilter;
            self.stopwatch.plugin(plugin, point, ending, began);
            if ending != Ending::Skip {
                self.stopwatch.asked(plugin, point, subject.profile, 1);
            }
            match answer {
                PreFilter::Pass => {}
                PreFilter::Skip => state.skipped.insert(plugin),
                PreFilter::Nodes(nodes) => {
                    limiting.insert(plugin);
                    let mut both = wanted.take();
                    match &mut both {
                        Some(wanted) => wanted.retain(|name| nodes.contains(name)),
                        None => both = Some(nodes),
                    }
                    wanted = both;
                    if wanted.as_ref().is_some_and(Vec::is_empty) {
                        diagnosis.rejectors = limiting;
                        return Err(nothing_left(limiting));
                    }
                }
                PreFilter::Reject(refusal) => {
                    if refusal.code == Code::Error {
                        let text = format!(
                            "running PreFilter plugin {:?}: {}",
                            plugin.name(),
                            refusal.message(&cluster.names)
                        );
                        return Err(Refusal::worded(Code::Error, text));
                    }
                    diagnosis.rejectors.insert(plugin);
                    if refusal.code == Code::Pending {
                        diagnosis.pending.insert(plugin);
                    }
                    if refusal.code == Code::Unresolvable {
                        return Err(refusal);
                    }
                    remembered = Some(refusal);
                }
            }
        }
        if let Some(refusal) = remembered {
            return Err(refusal);
        }
        let Some(wanted) = wanted else {
            return Ok(None);
        };
        diagnosis.rejectors = limiting;
        let names: Vec<_> = sorted_names(limiting);
        diagnosis.absent = Some(Refusal::worded(
            Code::Unresolvable,
            format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" ")),
        ));
        let rows = wanted
            .iter()
            .filter_map(|name| cluster.nodes.find(*name))
            .filter(|node| cluster.nodes.object(*node).is_some());
        Ok(Some(rows.collect()))
    }
}

fn sorted_names(plugins: PluginSet) -> Vec<&'static str> {
    let mut names: Vec<_> = plugins.iter().map(Plugin::name).collect();
    names.sort_unstable();
    names
}

fn nothing_left(limiting: PluginSet) -> Refusal {
    let names = sorted_names(limiting);
    let text = match names.as_slice() {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        several => format!(
            "node(s) didn't satisfy plugin(s) [{}] simultaneously",
            several.join(" ")
        ),
    };
    Refusal::worded(Code::Unresolvable, text)
}
