//! Who is to be tried again after something has happened.

use rustc_hash::FxHashMap;

use super::{Scheduler, gate};
use crate::cluster::{ClassId, Cluster, PodId};
use crate::framework::engine::Engine;
use crate::framework::events::{Change, ClusterEvent, pod_changes};
use crate::framework::plugin::Plugin;
use crate::framework::state::Context;
use crate::framework::stopwatch::HintTime;
use crate::model::Pod;
use crate::plugins;
use crate::queue::{Entry, Queue, Strategy};
use crate::time::Time;

impl Scheduler {
    pub(super) fn queue_and_gate(
        &mut self,
        now: Time,
    ) -> (&mut Queue, impl Fn(PodId) -> Option<Plugin> + '_) {
        let (cluster, engine, preempting) = (&self.cluster, &self.engine, &self.preempting);
        let gate = move |id| gate(cluster, engine, preempting, now, id);
        (&mut self.queue, gate)
    }

    /// Asks the plugins that refused a pod whether what has happened may help it.
    ///
    /// `ceiling`: only pods of at most that priority are concerned. `except`: not this one.
    pub(super) fn wake(
        &mut self,
        happened: ClusterEvent,
        change: Change<'_>,
        ceiling: Option<i32>,
        except: Option<PodId>,
        now: Time,
    ) {
        self.engine.stopwatch.told(happened);
        if !self.queue.listens() {
            return;
        }
        self.engine.stopwatch.begin();
        let mut hints = Vec::new();
        let (cluster, engine, preempting) = (&self.cluster, &self.engine, &self.preempting);
        let gate = |id| gate(cluster, engine, preempting, now, id);
        // Pods of a class that were refused by the same plugins are judged alike.
        let mut judged: FxHashMap<(ClassId, u64, u64), Strategy> = FxHashMap::default();
        let mut judge = |id: PodId, entry: &Entry| {
            if except == Some(id) || ceiling.is_some_and(|ceiling| entry.priority > ceiling) {
                return Strategy::Stay;
            }
            let Some(record) = cluster.pods.get(id) else {
                return Strategy::Stay;
            };
            let key = (record.class, entry.rejectors.bits(), entry.pending.bits());
            *judged.entry(key).or_insert_with(|| {
                strategy(
                    cluster,
                    engine,
                    &record.pod,
                    record.class,
                    entry,
                    happened,
                    change,
                    now,
                    &mut hints,
                )
            })
        };
        self.queue.move_all(happened, now, &gate, &mut judge);
        for hint in hints {
            self.engine.stopwatch.hint(hint);
        }
    }

    /// The pod itself has changed.
    pub(super) fn wake_itself(&mut self, id: PodId, old: &Pod, now: Time) {
        let (cluster, engine, preempting) = (&self.cluster, &self.engine, &self.preempting);
        let gate = |id| gate(cluster, engine, preempting, now, id);
        let (Some(record), Some(entry)) = (cluster.pods.get(id), self.queue.get(id)) else {
            return;
        };
        if entry.room != crate::queue::Room::Unschedulable {
            return;
        }
        let entry = entry.clone();
        let mut hints = Vec::new();
        for event in pod_changes(old, &record.pod) {
            let change = Change::Pod(Some(old), Some(&record.pod));
            let listens = entry.gated_by.is_none_or(|plugin| {
                plugins::events(plugin)
                    .is_none_or(|events| events.iter().any(|registered| registered.covers(event)))
            });
            if !listens {
                continue;
            }
            let strategy = strategy(
                cluster,
                engine,
                &record.pod,
                record.class,
                &entry,
                event,
                change,
                now,
                &mut hints,
            );
            if strategy != Strategy::Stay {
                self.queue.apply(id, strategy, &event.label(), now, &gate);
                break;
            }
        }
        for hint in hints {
            self.engine.stopwatch.hint(hint);
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "an event and a pod, each with what belongs to it"
)]
fn strategy(
    cluster: &Cluster,
    engine: &Engine,
    pod: &Pod,
    class: ClassId,
    entry: &Entry,
    happened: ClusterEvent,
    change: Change<'_>,
    now: Time,
    hints: &mut Vec<HintTime>,
) -> Strategy {
    let name = pod.spec.scheduler_name;
    let Some(profile) = engine.profiles.iter().find(|profile| profile.name == name) else {
        return Strategy::AfterBackoff;
    };
    let context = Context {
        cluster,
        profile,
        pod,
        class: cluster.classes.get(class),
        now,
    };
    let watch = &engine.stopwatch;
    let mut helps = |plugin: Plugin| {
        if !plugins::waits_for(plugin, happened) {
            return false;
        }
        let began = watch.now();
        let helps = plugins::may_help(plugin, &context, happened, change);
        if watch.is_on() {
            let nanos = watch.now().saturating_sub(began);
            hints.push(HintTime {
                plugin,
                event: happened,
                helps,
                nanos,
            });
        }
        helps
    };
    if entry.pending.iter().any(&mut helps) {
        return Strategy::Immediately;
    }
    if entry.rejectors.iter().any(&mut helps) {
        return Strategy::AfterBackoff;
    }
    Strategy::Stay
}
