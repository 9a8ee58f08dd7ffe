//! The search for devices: claim by claim, request by request, device by device, back where it does not work out.

use rustc_hash::{FxHashMap, FxHashSet};

use super::selector;
use crate::cluster::Cluster;
use crate::cluster::devices::Pool;
use crate::model::devices::{
    AllocatedDevice, Alternative, Attribute, Device, DeviceConstraint, DeviceId, ResourceClaim,
    ResourceSlice,
};
use crate::model::{Effect, Node};

/// No claim may have more.
const MOST_DEVICES: usize = 32;

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
) -> Result<Option<Solution>, String> {
    let pools = cluster.devices.pools(node, &cluster.names);
    let mut search = Search {
        cluster,
        claims,
        pools: &pools,
        taken: cluster.devices.taken(),
        chosen: vec![Vec::new(); claims.len()],
        matched: FxHashMap::default(),
        score: 0,
    };
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

struct Search<'a> {
    cluster: &'a Cluster,
    claims: &'a [&'a ResourceClaim],
    pools: &'a [Pool<'a>],
    taken: FxHashSet<DeviceId>,
    chosen: Vec<Vec<(AllocatedDevice, &'a Device)>>,
    /// Whether a device matches an alternative, once that is known.
    matched: FxHashMap<(usize, usize, usize, DeviceId), bool>,
    score: i64,
}

impl<'a> Search<'a> {
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
            .filter(|pool| !pool.incomplete)
            .flat_map(|pool| pool.devices.iter());
        for (position, (slice, device)) in usable.enumerate().skip(from) {
            let id = id_of(slice, device);
            if !at.alternative.admin_access && self.taken.contains(&id) {
                continue;
            }
            if !self.suits(at, slice, device, &id)? {
                continue;
            }
            self.choose(at, device, id.clone());
            if self.devices(at, left - 1, position + 1)? {
                return Ok(true);
            }
            self.unchoose(at, &id);
        }
        Ok(false)
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
        let before = self.chosen[at.claim].len();
        let mut given = Vec::new();
        let mut complete = true;
        for (slice, device) in pools.iter().flat_map(|pool| pool.devices.iter()) {
            let id = id_of(slice, device);
            if !self.selected(at, slice, device, &id)? {
                continue;
            }
            let free = at.alternative.admin_access || !self.taken.contains(&id);
            if !free
                || !self.suits(at, slice, device, &id)?
                || self.chosen[at.claim].len() >= MOST_DEVICES
            {
                complete = false;
                break;
            }
            self.choose(at, device, id.clone());
            given.push(id);
        }
        let any = self.chosen[at.claim].len() > before;
        if complete && any && self.request(at.claim, at.request + 1)? {
            return Ok(true);
        }
        for id in given.iter().rev() {
            self.unchoose(at, id);
        }
        Ok(false)
    }

    fn choose(&mut self, at: &At<'_>, device: &'a Device, id: DeviceId) {
        if !at.alternative.admin_access {
            self.taken.insert(id.clone());
        }
        let allocated = AllocatedDevice {
            request: at.name.into(),
            id,
            admin_access: at.alternative.admin_access,
        };
        self.chosen[at.claim].push((allocated, device));
    }

    fn unchoose(&mut self, at: &At<'_>, id: &DeviceId) {
        if !at.alternative.admin_access {
            self.taken.remove(id);
        }
        self.chosen[at.claim].pop();
    }

    fn suits(
        &mut self,
        at: &At<'_>,
        slice: &ResourceSlice,
        device: &Device,
        id: &DeviceId,
    ) -> Result<bool, String> {
        let bothers = device.taints.iter().any(|taint| {
            taint.effect != Effect::PreferNoSchedule
                && !at
                    .alternative
                    .tolerations
                    .iter()
                    .any(|toleration| toleration.tolerates(taint))
        });
        if bothers || !self.selected(at, slice, device, id)? {
            return Ok(false);
        }
        let claim = self.claims[at.claim];
        let chosen = &self.chosen[at.claim];
        Ok(claim
            .constraints
            .iter()
            .all(|constraint| agrees(constraint, at, device, &slice.driver, chosen)))
    }

    /// Whether the class's selectors and the request's hold.
    fn selected(
        &mut self,
        at: &At<'_>,
        slice: &ResourceSlice,
        device: &Device,
        id: &DeviceId,
    ) -> Result<bool, String> {
        let key = (at.claim, at.request, at.index, id.clone());
        if let Some(known) = self.matched.get(&key) {
            return Ok(*known);
        }
        let claim = self.claims[at.claim];
        let class = self.cluster.devices.classes.get(&at.alternative.class);
        let class_selectors = class.map_or(&[][..], |class| &class.selectors);
        let mut holds = true;
        for (index, expression) in class_selectors.iter().enumerate() {
            holds = holds
                && selector::matches(expression, &slice.driver, device).map_err(|error| {
                    format!("class {}: selector #{index}: {error}", at.alternative.class)
                })?;
        }
        for (index, expression) in at.alternative.selectors.iter().enumerate() {
            holds = holds
                && selector::matches(expression, &slice.driver, device).map_err(|error| {
                    format!(
                        "claim {}: selector #{index}: {error}",
                        self.full_name(claim)
                    )
                })?;
        }
        self.matched.insert(key, holds);
        Ok(holds)
    }

    fn full_name(&self, claim: &ResourceClaim) -> String {
        format!(
            "{}/{}",
            self.cluster.names.text(claim.namespace),
            claim.name
        )
    }
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

fn agrees(
    constraint: &DeviceConstraint,
    at: &At<'_>,
    device: &Device,
    driver: &str,
    chosen: &[(AllocatedDevice, &Device)],
) -> bool {
    let concerns = |request: &str| {
        let main = request.split('/').next().unwrap_or(request);
        constraint.requests.is_empty()
            || constraint
                .requests
                .iter()
                .any(|name| &**name == request || &**name == main)
    };
    if !concerns(at.name) {
        return true;
    }
    let Some(own) = attribute(device, driver, &constraint.attribute) else {
        return false;
    };
    let mut others = chosen.iter().filter(|(other, _)| concerns(&other.request));
    others.all(|(other, device)| {
        let same = attribute(device, &other.id.driver, &constraint.attribute) == Some(own);
        same != constraint.distinct
    })
}
