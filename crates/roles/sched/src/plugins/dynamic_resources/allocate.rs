//! The search for devices: claim by claim, request by request, device by device, back where it does not work out.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHasher};

use super::capacity;
use crate::cluster::Cluster;
use crate::cluster::devices::{Given, Pool};
use crate::model::device_selector::DeviceSelector;
use crate::model::devices::{
    AllocatedDevice, Alternative, Attribute, Device, DeviceConstraint, DeviceId, DeviceTaint,
    ResourceClaim, ResourceSlice, Share,
};
use crate::model::{Effect, Node};

/// No claim may have more.
const MOST_DEVICES: usize = 32;
/// Devices that are looked at in what stands for a second. There are claims for which trying all combinations would take
/// years.
const STEPS_A_SECOND: u64 = 300_000;
/// Values that the selectors of one pod may look at in what stands for a second, on all nodes together: less than 0.1 s of
/// work. One expression may look at millions, so that a pod with many of them would hold up all others.
const WORK_A_SECOND: u64 = 3_000_000;
/// On a node it may always be so many. Plain selectors look at a dozen for each device.
const LEAST_WORK: u64 = 5_000;

/// Devices by claim, and how well its wishes were met.
#[derive(Debug, Clone, Default)]
pub struct Solution {
    pub claims: Vec<Vec<AllocatedDevice>>,
    pub score: i64,
}

/// `Ok(None)`: the node cannot give all of it. `Err`: nobody can tell.
pub fn allocate(
    cluster: &Cluster,
    claims: &[&ResourceClaim],
    node: &Node,
    timeout: Duration,
) -> Result<Option<Solution>, String> {
    let pools = cluster.devices.pools(node, &cluster.names);
    let given = cluster.devices.given();
    let mut search = Search {
        cluster,
        claims,
        pools: &pools,
        left: pools.iter().map(|pool| left(pool, given)).collect(),
        given,
        own: Given::default(),
        chosen: vec![Vec::new(); claims.len()],
        matched: FxHashMap::default(),
        score: 0,
        seen: claims
            .iter()
            .map(|claim| vec![Seen::default(); claim.constraints.len()])
            .collect(),
        steps_left: within(timeout, STEPS_A_SECOND),
        work_left: (within(timeout, WORK_A_SECOND) / (cluster.nodes.rows() as u64).max(1))
            .max(LEAST_WORK),
        node,
    };
    for index in 0..claims.len() {
        search.check_number(index)?;
    }
    if search.request(0, 0)? {
        let score = search.score;
        return Ok(Some(Solution {
            claims: search
                .chosen
                .into_iter()
                .map(|list| list.into_iter().map(|(device, _)| device).collect())
                .collect(),
            score,
        }));
    }
    Ok(None)
}

/// What may be done in a time; zero is no limit.
fn within(timeout: Duration, a_second: u64) -> u64 {
    match timeout.is_zero() {
        true => u64::MAX,
        false => a_second.saturating_mul(timeout.as_millis() as u64) / 1000,
    }
}

/// By set and counter, in thousandths.
/// Wide enough for whatever is taken, so that it can be given back.
type Counters = BTreeMap<(Box<str>, Box<str>), i128>;

/// What devices that are given away leave of a pool's counters.
fn left(pool: &Pool<'_>, given: &Given) -> Counters {
    let mut left = Counters::new();
    for set in pool.slices.iter().flat_map(|slice| &slice.counters) {
        for (counter, amount) in &set.counters {
            left.insert((set.name.clone(), counter.clone()), i128::from(*amount));
        }
    }
    if left.is_empty() {
        return left;
    }
    for slice in &pool.slices {
        for device in &slice.devices {
            let id = id_of(slice, device);
            if given.whole.contains(&id) || given.parts.contains_key(&id) {
                take(&mut left, device, 1);
            }
        }
    }
    left
}

/// Takes what a device consumes so many times.
fn take(left: &mut Counters, device: &Device, times: i64) {
    for set in &device.consumes {
        for (counter, amount) in &set.counters {
            if let Some(left) = left.get_mut(&(set.name.clone(), counter.clone())) {
                *left -= i128::from(*amount) * i128::from(times);
            }
        }
    }
}

struct Search<'a> {
    cluster: &'a Cluster,
    claims: &'a [&'a ResourceClaim],
    pools: &'a [Pool<'a>],
    /// What others have.
    given: &'a Given,
    /// What this search has chosen. Of shared devices, all that is gone: others' parts, too.
    own: Given,
    /// By pool: what is left of its counters.
    left: Vec<Counters>,
    chosen: Vec<Vec<(AllocatedDevice, &'a Device)>>,
    /// Whether a device matches an alternative, once that is known.
    matched: FxHashMap<(usize, usize, usize, DeviceId), bool>,
    score: i64,
    /// By claim and constraint.
    seen: Vec<Vec<Seen>>,
    steps_left: u64,
    /// For selectors.
    work_left: u64,
    node: &'a Node,
}

/// What devices that have to differ are known by: of each request, that of the last one. The original keeps no more, so
/// devices of one request only differ from the one before.
#[derive(Debug, Clone, Default)]
struct Seen {
    by_request: FxHashMap<Box<str>, Attribute>,
}

impl Seen {
    fn add(&mut self, request: &str, attribute: &Attribute) -> bool {
        let is_new = self.by_request.values().all(|other| other != attribute);
        if is_new {
            self.by_request
                .insert(main_request(request).into(), attribute.clone());
        }
        is_new
    }

    fn remove(&mut self, request: &str) {
        self.by_request.remove(main_request(request));
    }
}

/// Without the name of the alternative.
fn main_request(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

fn concerns(constraint: &DeviceConstraint, request: &str) -> bool {
    let names = &constraint.requests;
    let is_meant = |name: &str| name == request || name == main_request(request);
    names.is_empty() || names.iter().any(|name| is_meant(name))
}

impl<'a> Search<'a> {
    /// A claim that would have more devices than any may have is a mistake of whoever wrote it.
    fn check_number(&mut self, claim: usize) -> Result<(), String> {
        let asked = self.claims[claim];
        let requests = asked.requests.len();
        if requests > MOST_DEVICES {
            return Err(format!(
                "claim {}: number of requests {requests} exceeds the claim limit of {MOST_DEVICES}",
                self.full_name(asked)
            ));
        }
        let mut number = 0_usize;
        for (request, wanted) in asked.requests.iter().enumerate() {
            let mut least = None;
            for (index, alternative) in wanted.alternatives.iter().enumerate() {
                let at = At {
                    claim,
                    request,
                    index,
                    name: &wanted.name,
                    alternative,
                };
                let devices = match alternative.count {
                    Some(count) => count,
                    None => self.number_of_all(&at)?,
                };
                least = Some(least.map_or(devices, |least: usize| least.min(devices)));
            }
            number = number.saturating_add(least.unwrap_or(0));
        }
        if number > MOST_DEVICES {
            return Err(format!(
                "claim {}: number of requested devices {number} exceeds the claim limit of {MOST_DEVICES}",
                self.full_name(asked)
            ));
        }
        Ok(())
    }

    /// How many devices match a request for all. Of a pool that is not complete, that is said when it is asked for.
    fn number_of_all(&mut self, at: &At<'_>) -> Result<usize, String> {
        let pools = self.pools;
        if pools.iter().any(|pool| pool.incomplete) {
            return Ok(0);
        }
        let mut number = 0;
        for (index, pool) in pools.iter().enumerate() {
            for (slice, device) in &pool.devices {
                let candidate = Candidate {
                    pool: index,
                    slice,
                    device,
                    id: id_of(slice, device),
                };
                number += usize::from(self.selected(at, &candidate)?);
            }
        }
        Ok(number)
    }

    /// Finds devices for a request and all that follow it.
    fn request(&mut self, claim: usize, request: usize) -> Result<bool, String> {
        let Some(ask) = self.claims.get(claim) else {
            return Ok(true);
        };
        let Some(wanted) = ask.requests.get(request) else {
            return self.request(claim + 1, 0);
        };
        for (index, alternative) in wanted.alternatives.iter().enumerate() {
            let name: Box<str> = if wanted.has_subrequests {
                format!("{}/{}", wanted.name, alternative.name).into()
            } else {
                wanted.name.clone()
            };
            let worth = if wanted.has_subrequests {
                8 - index as i64
            } else {
                0
            };
            let at = At {
                claim,
                request,
                index,
                name: &name,
                alternative,
            };
            self.score += worth;
            let found = match alternative.count {
                Some(count) => self.devices(&at, count, 0)?,
                None => self.all_devices(&at)?,
            };
            if found {
                return Ok(true);
            }
            self.score -= worth;
        }
        Ok(false)
    }

    /// So many devices more, from a position on.
    fn devices(&mut self, at: &At<'_>, left: usize, from: usize) -> Result<bool, String> {
        if left == 0 {
            return self.request(at.claim, at.request + 1);
        }
        if self.chosen[at.claim].len() >= MOST_DEVICES {
            return Ok(false);
        }
        let pools = self.pools;
        let usable = pools
            .iter()
            .enumerate()
            .filter(|(_, pool)| !pool.incomplete)
            .flat_map(|(index, pool)| pool.devices.iter().map(move |device| (index, device)));
        for (position, (pool, (slice, device))) in usable.enumerate().skip(from) {
            self.step()?;
            let candidate = Candidate {
                pool,
                slice,
                device,
                id: id_of(slice, device),
            };
            if !self.is_free(at, &candidate) || !self.selected(at, &candidate)? {
                continue;
            }
            if !self.is_usable(at, &candidate) || !self.agree(at, &candidate) {
                continue;
            }
            let Some(undo) = self.choose(at, &candidate) else {
                self.forget(at, usize::MAX);
                continue;
            };
            if self.devices(at, left - 1, position + 1)? {
                return Ok(true);
            }
            self.forget(at, usize::MAX);
            self.unchoose(at, &candidate, undo);
        }
        Ok(false)
    }

    /// One device more is looked at.
    fn step(&mut self) -> Result<(), String> {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.ok_or_else(|| self.timed_out())?;
        Ok(())
    }

    fn timed_out(&self) -> String {
        let node = self.cluster.names.text(self.node.name);
        format!("node {node}: timed out trying to allocate devices")
    }

    /// Every device that matches, or none.
    fn all_devices(&mut self, at: &At<'_>) -> Result<bool, String> {
        let claim = self.claims[at.claim];
        let pools = self.pools;
        if let Some(pool) = pools.iter().find(|pool| pool.incomplete) {
            return Err(format!(
                "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently being updated",
                self.full_name(claim),
                at.name,
                pool.driver,
                pool.name
            ));
        }
        let mut given = Vec::new();
        let mut complete = true;
        let all = pools
            .iter()
            .enumerate()
            .flat_map(|(index, pool)| pool.devices.iter().map(move |device| (index, device)));
        for (pool, (slice, device)) in all {
            self.step()?;
            let candidate = Candidate {
                pool,
                slice,
                device,
                id: id_of(slice, device),
            };
            if !self.selected(at, &candidate)? {
                continue;
            }
            let fits = self.is_free(at, &candidate)
                && self.is_usable(at, &candidate)
                && self.chosen[at.claim].len() < MOST_DEVICES;
            if fits && !self.agree(at, &candidate) {
                return Err(format!(
                    "claim {}, request {}: cannot add device {}/{}/{} because a claim constraint would not be satisfied",
                    self.full_name(claim),
                    at.name,
                    candidate.id.driver,
                    candidate.id.pool,
                    candidate.id.device
                ));
            }
            let Some(undo) = fits.then(|| self.choose(at, &candidate)).flatten() else {
                if fits {
                    self.forget(at, usize::MAX);
                }
                complete = false;
                break;
            };
            given.push((candidate, undo));
        }
        if complete && !given.is_empty() && self.request(at.claim, at.request + 1)? {
            return Ok(true);
        }
        for (candidate, undo) in given.into_iter().rev() {
            self.forget(at, usize::MAX);
            self.unchoose(at, &candidate, undo);
        }
        Ok(false)
    }

    /// Nobody has it, or that does not matter.
    fn is_free(&self, at: &At<'_>, candidate: &Candidate<'_>) -> bool {
        if at.alternative.admin_access {
            let chosen = &self.chosen[at.claim];
            return candidate.device.is_shared
                || chosen.iter().all(|(other, _)| other.id != candidate.id);
        }
        !self.given.whole.contains(&candidate.id) && !self.own.whole.contains(&candidate.id)
    }

    /// What is gone of a shared device.
    fn parts(&self, id: &DeviceId) -> Option<&BTreeMap<Box<str>, i64>> {
        let own = self.own.parts.get(id);
        own.or_else(|| self.given.parts.get(id))
    }

    /// Its taints are tolerated, and there is enough of the counters that it takes from.
    fn is_usable(&self, at: &At<'_>, candidate: &Candidate<'_>) -> bool {
        let tolerated = |taint: &DeviceTaint| {
            let mut tolerations = at.alternative.tolerations.iter();
            taint.effect == Effect::PreferNoSchedule
                || tolerations.any(|toleration| toleration.tolerates(taint))
        };
        let device = candidate.device;
        let features = &self.cluster.features;
        let rules = self.cluster.devices.rules.values();
        let ruled = rules
            .filter(|rule| features.taint_rules && rule.concerns(candidate.slice, &device.name))
            .map(|rule| &rule.taint);
        if features.device_taints && !device.taints.iter().chain(ruled).all(tolerated) {
            return false;
        }
        let in_use = device.is_shared && self.parts(&candidate.id).is_some();
        in_use || {
            let left = &self.left[candidate.pool];
            device.consumes.iter().all(|set| {
                set.counters.iter().all(|(counter, amount)| {
                    let key = (set.name.clone(), counter.clone());
                    left.get(&key)
                        .is_none_or(|left| *left >= i128::from(*amount))
                })
            })
        }
    }

    /// The claim's constraints allow it beside what has been chosen; they remember it until [`Self::forget`].
    fn agree(&mut self, at: &At<'_>, candidate: &Candidate<'_>) -> bool {
        let claim = self.claims[at.claim];
        let (device, driver) = (candidate.device, &candidate.slice.driver);
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let chosen = &self.chosen[at.claim];
            let agreed = match constraint.distinct {
                true if concerns(constraint, at.name) => {
                    attribute(device, driver, &constraint.attribute)
                        .is_some_and(|own| self.seen[at.claim][index].add(at.name, own))
                }
                true => true,
                false => agrees(constraint, at, device, driver, chosen),
            };
            if !agreed {
                self.forget(at, index);
                return false;
            }
        }
        true
    }

    /// The first so many constraints of the claim forget a device.
    fn forget(&mut self, at: &At<'_>, constraints: usize) {
        let claim = self.claims[at.claim];
        for (index, constraint) in claim.constraints.iter().enumerate().take(constraints) {
            if constraint.distinct && concerns(constraint, at.name) {
                self.seen[at.claim][index].remove(at.name);
            }
        }
    }

    /// `None`: it has not as much as is asked for.
    fn choose(&mut self, at: &At<'_>, candidate: &Candidate<'a>) -> Option<Undo> {
        let device = candidate.device;
        let before = self.parts(&candidate.id).cloned();
        let consumed = capacity::consumed(device, &at.alternative.capacity, before.as_ref())?;
        let undo = Undo {
            takes: before.is_none() || !device.is_shared,
            parts: self.own.parts.get(&candidate.id).cloned(),
        };
        if undo.takes {
            take(&mut self.left[candidate.pool], device, 1);
        }
        let share = device.is_shared.then(|| Share {
            id: self.share_id(at, &candidate.id),
            consumed,
        });
        let allocated = AllocatedDevice {
            request: at.name.into(),
            id: candidate.id.clone(),
            admin_access: at.alternative.admin_access,
            share,
            tolerations: at.alternative.tolerations.clone(),
            readiness: device.readiness.clone(),
        };
        if device.is_shared {
            let gone = before.unwrap_or_default();
            self.own.parts.insert(candidate.id.clone(), gone);
            self.own.add_part(&allocated);
        } else if !at.alternative.admin_access {
            self.own.whole.insert(candidate.id.clone());
        }
        self.chosen[at.claim].push((allocated, device));
        Some(undo)
    }

    fn unchoose(&mut self, at: &At<'_>, candidate: &Candidate<'_>, undo: Undo) {
        if candidate.device.is_shared {
            match undo.parts {
                Some(parts) => self.own.parts.insert(candidate.id.clone(), parts),
                None => self.own.parts.remove(&candidate.id),
            };
        } else if !at.alternative.admin_access {
            self.own.whole.remove(&candidate.id);
        }
        if undo.takes {
            take(&mut self.left[candidate.pool], candidate.device, -1);
        }
        self.chosen[at.claim].pop();
    }

    /// Nobody else's: made of what it is a share of, for whom, and how much of it there was.
    fn share_id(&self, at: &At<'_>, id: &DeviceId) -> Box<str> {
        let hash = |salt: u64| {
            let mut hasher = FxHasher::default();
            (salt, &self.claims[at.claim].uid, at.name, id).hash(&mut hasher);
            self.chosen[at.claim].len().hash(&mut hasher);
            hasher.finish()
        };
        let (high, low) = (hash(1), hash(2));
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff
        )
        .into()
    }

    /// Whether the class's selectors and the request's hold.
    fn selected(&mut self, at: &At<'_>, candidate: &Candidate<'_>) -> Result<bool, String> {
        let device = candidate.device;
        let features = &self.cluster.features;
        if !features.binding_conditions && !device.readiness.wanted.is_empty() {
            return Ok(false);
        }
        let key = (at.claim, at.request, at.index, candidate.id.clone());
        if let Some(known) = self.matched.get(&key) {
            return Ok(*known);
        }
        let claim = self.claims[at.claim];
        let class = self.cluster.devices.classes.get(&at.alternative.class);
        let of_class = class.map_or(&[][..], |class| &class.selectors);
        let of_request = &at.alternative.selectors;
        let mut holds = true;
        for (index, selector) in of_class.iter().enumerate() {
            holds = holds
                && self
                    .holds(selector, candidate)?
                    .map_err(|error| of_selector("class", &at.alternative.class, index, &error))?;
        }
        for (index, selector) in of_request.iter().enumerate() {
            holds = holds
                && self
                    .holds(selector, candidate)?
                    .map_err(|error| of_selector("claim", &self.full_name(claim), index, &error))?;
        }
        self.matched.insert(key, holds);
        Ok(holds)
    }

    /// The outer error: the work for this node is used up. The inner one is the expression's.
    fn holds(
        &mut self,
        selector: &DeviceSelector,
        candidate: &Candidate<'_>,
    ) -> Result<Result<bool, String>, String> {
        let Candidate { slice, device, .. } = candidate;
        let found = selector.matches(&slice.driver, device, &mut self.work_left);
        match self.work_left {
            0 => Err(self.timed_out()),
            _ => Ok(found),
        }
    }

    fn full_name(&self, claim: &ResourceClaim) -> String {
        format!(
            "{}/{}",
            self.cluster.names.text(claim.namespace),
            claim.name
        )
    }
}

fn of_selector(kind: &str, name: &str, index: usize, error: &str) -> String {
    format!("{kind} {name}: selector #{index}: {error}")
}

/// A device that might do.
struct Candidate<'a> {
    pool: usize,
    slice: &'a ResourceSlice,
    device: &'a Device,
    id: DeviceId,
}

/// How to take a choice back.
struct Undo {
    /// It has taken from the pool's counters.
    takes: bool,
    /// What this search had counted as gone of a shared device before.
    parts: Option<BTreeMap<Box<str>, i64>>,
}

/// Where in the search.
struct At<'a> {
    claim: usize,
    request: usize,
    index: usize,
    name: &'a str,
    alternative: &'a Alternative,
}

fn id_of(slice: &ResourceSlice, device: &Device) -> DeviceId {
    DeviceId {
        driver: slice.driver.clone(),
        pool: slice.pool.clone(),
        device: device.name.clone(),
    }
}

fn attribute<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a Attribute> {
    let own = || {
        name.strip_prefix(driver)
            .and_then(|rest| rest.strip_prefix('/'))
    };
    device
        .attributes
        .get(name)
        .or_else(|| device.attributes.get(own()?))
}

/// Whether a device has the same in common as those that were chosen.
fn agrees(
    constraint: &DeviceConstraint,
    at: &At<'_>,
    device: &Device,
    driver: &str,
    chosen: &[(AllocatedDevice, &Device)],
) -> bool {
    if !concerns(constraint, at.name) {
        return true;
    }
    let Some(own) = attribute(device, driver, &constraint.attribute) else {
        return false;
    };
    let mut others = chosen
        .iter()
        .filter(|(other, _)| concerns(constraint, &other.request));
    others.all(|(other, device)| {
        attribute(device, &other.id.driver, &constraint.attribute) == Some(own)
    })
}
