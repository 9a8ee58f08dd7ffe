//! Which of those who may go have to.

use std::collections::{BTreeMap, BTreeSet};

use super::feature::{Aim, Feature};
use super::needs::{Amounts, Need};
use super::victims::Victim;
use crate::input::PodView;

#[derive(Debug, Clone)]
pub struct Task<'a> {
    pub feature: Feature,
    pub need: Need,
    pub victims: Vec<Victim<'a>>,
}

/// Who goes, and for which feature.
#[derive(Debug, Clone)]
pub struct Chosen<'a> {
    pub pod: &'a PodView,
    pub task: usize,
}

/// What may be done with a pod that could go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Candidate,
    /// It is on its way out: what it releases counts already.
    Leaving,
    Spared,
}

type Released = BTreeMap<Aim, Amounts>;

pub struct Selection<'t, 'a> {
    tasks: &'t [Task<'a>],
    /// What each pod's end releases, by aim; what several features see in it is the same, so the most of it counts.
    by_pod: BTreeMap<&'a str, Released>,
}

impl<'t, 'a> Selection<'t, 'a> {
    /// `releases`: what a pod's end releases of what a task is after, whether the task could choose it or not.
    pub fn new(
        tasks: &'t [Task<'a>],
        releases: impl Fn(&Task<'a>, &'a PodView) -> Amounts,
    ) -> Self {
        let mut by_pod: BTreeMap<&str, Released> = BTreeMap::new();
        for victim in tasks.iter().flat_map(|task| &task.victims) {
            let pod = victim.pod;
            if by_pod.contains_key(&*pod.uid) {
                continue;
            }
            let mut released = Released::new();
            for task in tasks {
                let amounts = released.entry(task.feature.aim()).or_default();
                for (resource, amount) in releases(task, pod) {
                    let most = amounts.entry(resource).or_default();
                    *most = (*most).max(amount);
                }
            }
            by_pod.insert(&pod.uid, released);
        }
        Self { tasks, by_pod }
    }

    /// Exactly whom koordlet would choose. Once a feature has chosen, what all features have released so far is compared with
    /// what this one still needed at its beginning.
    pub fn like_koordlet(&self, standing: impl Fn(&PodView) -> Standing) -> Vec<Chosen<'a>> {
        let (mut released, mut gone) = self.leaving(&standing);
        let mut chosen: Vec<Chosen<'a>> = Vec::new();
        for (number, task) in self.tasks.iter().enumerate() {
            let aim = task.feature.aim();
            let need = left(&task.need.amounts, released.get(&aim));
            if need.is_empty() {
                continue;
            }
            for victim in &task.victims {
                let pod = victim.pod;
                if standing(pod) != Standing::Candidate || !gone.insert(&*pod.uid) {
                    continue;
                }
                chosen.push(Chosen { pod, task: number });
                self.add(&mut released, pod);
                if left(&need, released.get(&aim)).is_empty() {
                    break;
                }
            }
        }
        chosen
    }

    /// As few as it takes, in the same order: nobody goes in vain.
    pub fn smallest(&self, standing: impl Fn(&PodView) -> Standing) -> Vec<Chosen<'a>> {
        let (mut released, mut counted) = self.leaving(&standing);
        let leaving = released.clone();
        let mut chosen: Vec<Chosen<'a>> = Vec::new();
        for (number, task) in self.tasks.iter().enumerate() {
            let aim = task.feature.aim();
            for victim in &task.victims {
                let need = left(&task.need.amounts, released.get(&aim));
                if need.is_empty() {
                    break;
                }
                let helps =
                    |(resource, amount): (&_, &i64)| *amount > 0 && need.contains_key(resource);
                let pod = victim.pod;
                if standing(pod) != Standing::Candidate
                    || !victim.releases.iter().any(helps)
                    || !counted.insert(&*pod.uid)
                {
                    continue;
                }
                chosen.push(Chosen { pod, task: number });
                self.add(&mut released, pod);
            }
        }
        // A large pod may have made small ones before it needless. Who would go last is let off first.
        for position in (0..chosen.len()).rev() {
            let mut rest = leaving.clone();
            for (other, one) in chosen.iter().enumerate() {
                if other != position {
                    self.add(&mut rest, one.pod);
                }
            }
            let needless = self.tasks.iter().all(|task| {
                let aim = task.feature.aim();
                let needs = &task.need.amounts;
                left(needs, rest.get(&aim)) == left(needs, released.get(&aim))
            });
            if needless {
                chosen.remove(position);
                released = rest;
            }
        }
        chosen
    }

    /// What pods on their way out release, and who they are.
    fn leaving(&self, standing: impl Fn(&PodView) -> Standing) -> (Released, BTreeSet<&'a str>) {
        let (mut released, mut counted) = (Released::new(), BTreeSet::new());
        for victim in self.tasks.iter().flat_map(|task| &task.victims) {
            let pod = victim.pod;
            if standing(pod) == Standing::Leaving && counted.insert(&*pod.uid) {
                self.add(&mut released, pod);
            }
        }
        (released, counted)
    }

    fn add(&self, released: &mut Released, pod: &PodView) {
        for (aim, amounts) in self.by_pod.get(&*pod.uid).into_iter().flatten() {
            let sums = released.entry(*aim).or_default();
            for (resource, amount) in amounts {
                let sum = sums.entry(*resource).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
    }
}

/// What is needed and not released.
pub fn left(need: &Amounts, released: Option<&Amounts>) -> Amounts {
    let left = need.iter().filter_map(|(resource, amount)| {
        let released = released.and_then(|released| released.get(resource));
        let left = amount.saturating_sub(released.copied().unwrap_or(0));
        (left > 0).then_some((*resource, left))
    });
    left.collect()
}
