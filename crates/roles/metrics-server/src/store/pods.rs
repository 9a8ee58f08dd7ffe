//! Pods: known to the API server, to a kubelet, or to both.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::decode::ContainerPoint;
use crate::history::{Sample, Workload};
use crate::intern::Interner;
use crate::labels::Labels;
use crate::points::{Track, Usage};

/// A pod's place in the order of namespaces and names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey(Arc<str>);

/// Sorts before whatever a name can contain, so that the order of the texts is the order of the pairs.
const BETWEEN: char = '\0';

impl PodKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}{BETWEEN}{name}").into())
    }

    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Namespace and name.
    pub(crate) fn parts(&self) -> (&str, &str) {
        let Some(at) = memchr::memchr(BETWEEN as u8, self.0.as_bytes()) else {
            return Default::default();
        };
        (&self.0[..at], &self.0[at + 1..])
    }

    pub(super) fn compare(&self, namespace: &str, name: &str) -> Ordering {
        // Mostly it is the same one, which is seen without looking for where the name begins.
        let rest = self.0.strip_prefix(namespace);
        let rest = rest.and_then(|rest| rest.strip_prefix(BETWEEN));
        match rest.is_some_and(|rest| rest == name) {
            true => Ordering::Equal,
            false => self.parts().cmp(&(namespace, name)),
        }
    }

    /// Where the pods of a namespace begin.
    pub(crate) fn first_of(namespace: &str) -> String {
        format!("{namespace}{BETWEEN}")
    }
}

impl Borrow<str> for PodKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Pod {
    pub key: PodKey,
    /// `None`: the API server knows of no such running pod.
    pub labels: Option<Labels>,
    /// Whose it is, where that matters to somebody.
    pub workload: Option<Arc<Workload>>,
    /// The node whose kubelet told of it.
    pub node: Option<Arc<str>>,
    /// Sorted by name.
    pub containers: Box<[Tracked]>,
    /// The list in which the API server last told of it.
    pub listed: u32,
}

#[derive(Debug)]
pub(crate) struct Tracked {
    pub name: Arc<str>,
    pub track: Track,
}

impl Pod {
    pub fn new(key: PodKey) -> Self {
        Self {
            key,
            labels: None,
            workload: None,
            node: None,
            containers: Box::default(),
            listed: 0,
        }
    }

    /// How many of its containers have a rate.
    pub fn points(&self) -> usize {
        let tracks = self.containers.iter().map(|one| &one.track);
        tracks.filter(|track| track.previous.is_some()).count()
    }

    /// When the youngest of its containers began.
    pub fn began(&self) -> i64 {
        let starts = self.containers.iter().map(|one| one.track.last.start);
        starts.max().unwrap_or(0)
    }

    /// What its node says of it now; `points` are sorted by container.
    pub fn follow(&mut self, points: &[ContainerPoint<'_>], names: &mut Interner, resolution: i64) {
        let same = self.containers.len() == points.len()
            && std::iter::zip(&self.containers, points)
                .all(|(one, new)| *one.name == *new.container);
        if same {
            for (one, new) in std::iter::zip(&mut self.containers, points) {
                let track = one.track.follow(new.point, resolution);
                one.track = track.with_swap(new.swap);
            }
            return;
        }
        let known = &self.containers;
        let next = points.iter().map(|new| {
            let before = known.iter().find(|one| *one.name == *new.container);
            let track = match before {
                Some(before) => before.track.follow(new.point, resolution),
                None => Track::begin(new.point, resolution),
            };
            let name = before.map_or_else(|| names.share(new.container), |one| one.name.clone());
            Tracked {
                name,
                track: track.with_swap(new.swap),
            }
        });
        self.containers = next.collect();
    }

    /// When the newest of its figures was taken.
    pub fn newest(&self) -> i64 {
        let times = self.containers.iter().map(|one| one.track.last.at);
        times.max().unwrap_or(i64::MIN)
    }

    /// What is new since then, for the books of its workload.
    pub fn samples(&self, since: i64) -> impl Iterator<Item = Sample> {
        let new = self
            .containers
            .iter()
            .filter(move |one| one.track.last.at > since);
        new.filter_map(|one| {
            Some(Sample {
                workload: Arc::clone(self.workload.as_ref()?),
                container: Arc::clone(&one.name),
                usage: one.track.usage()?.ok()?,
            })
        })
    }

    /// Appends what its containers use; `false`: it is not to be shown.
    pub fn usage<'a>(&'a self, lenient: bool, into: &mut Vec<(&'a str, Usage)>) -> bool {
        let mut has_rate = false;
        for one in &self.containers {
            match one.track.usage() {
                Some(usage) => {
                    has_rate = true;
                    // A counter that fell says nothing about this container; the others are shown.
                    into.extend(usage.ok().map(|usage| (&*one.name, usage)));
                }
                None if lenient => {}
                None => return false,
            }
        }
        has_rate
    }
}
