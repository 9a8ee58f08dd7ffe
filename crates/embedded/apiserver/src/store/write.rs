//! Writes: planned under the lock, kept by the journal, then published.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::ties::{Place, owners};
use super::{Attributes, Change, Event, Expect, Mismatch, Shared, State, Store, Stored};

/// Why a write did not begin.
#[derive(Debug)]
pub enum Refusal {
    /// The key is not as expected.
    Mismatch(Mismatch),
    /// A write of the same key is under way. When it has settled, it can be tried again.
    UnderWay(Settling),
}

/// Why a write did not happen.
#[derive(Debug)]
pub enum WriteError {
    Mismatch(Mismatch),
    /// The disk refused; the store's trouble says why.
    NotKept,
}

/// Why something new was not written.
#[derive(Debug)]
pub enum NewError {
    /// What it was to be in is gone or going: the shelf of that.
    Homeless(Box<str>),
    Write(WriteError),
}

/// Ends when some of the writes under way are published or given up.
#[derive(Debug)]
pub struct Settling(watch::Receiver<u64>);

impl Settling {
    async fn wait(mut self) {
        // The sender lives as long as the store.
        let _ = self.0.changed().await;
    }
}

/// The promise that a write is, or will be, on disk and seen by readers.
#[derive(Debug)]
#[must_use = "an answer before the write is durable is a lie"]
pub struct Durable(Option<oneshot::Receiver<bool>>);

impl Durable {
    pub(super) fn already() -> Self {
        Self(None)
    }

    /// Nobody is there to write it.
    pub(super) fn never() -> Self {
        let (_, wait) = oneshot::channel();
        Self(Some(wait))
    }

    pub(super) fn pending() -> (oneshot::Sender<bool>, Self) {
        let (done, wait) = oneshot::channel();
        (done, Self(Some(wait)))
    }

    /// `false`: the disk refused.
    pub async fn wait(self) -> bool {
        match self.0 {
            None => true,
            Some(done) => done.await.unwrap_or(false),
        }
    }
}

/// A write with its revision, not yet seen by readers.
#[derive(Debug)]
pub(super) struct Plan {
    pub place: Place,
    /// With the revision of the write; of a deletion the last state.
    pub object: Arc<Stored>,
    /// The uid of what is deleted; `None`: it is put.
    pub deleted: Option<Box<str>>,
    /// Somebody has to look after it.
    disturbs: bool,
}

/// All writes that are under way.
#[derive(Debug)]
pub(super) struct Plans {
    /// The last revision that was given to one.
    revision: u64,
    /// What will be there, by place.
    latest: BTreeMap<Place, Latest>,
}

#[derive(Debug)]
struct Latest {
    revision: u64,
    object: Option<Arc<Stored>>,
}

impl Plans {
    pub(super) fn after(revision: u64) -> Self {
        Self {
            revision,
            latest: BTreeMap::new(),
        }
    }

    /// Whether something on this shelf is under way.
    pub(super) fn concern(&self, shelf: &str) -> bool {
        self.latest.keys().any(|(name, _)| name.as_ref() == shelf)
    }
}

impl Store {
    /// Writes `object`, whose `metadata.resourceVersion` becomes that of the write, if the key is as expected. Returns
    /// when readers see it.
    pub async fn put(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
        object: &mut Value,
        attributes: Attributes,
    ) -> Result<Arc<Stored>, WriteError> {
        loop {
            match self.begin_put(shelf, key, expect, object, &attributes) {
                Ok((stored, durable)) => return finish(stored, durable).await,
                Err(Refusal::Mismatch(mismatch)) => return Err(WriteError::Mismatch(mismatch)),
                Err(Refusal::UnderWay(settling)) => settling.wait().await,
            }
        }
    }

    /// As [`Store::put`], of an object that is new and is in others, its homes. Whoever deletes a home and then looks
    /// what is in it misses nothing: nothing is begun once the home is marked for deletion, or is gone.
    pub async fn put_new(
        &self,
        shelf: &str,
        key: &str,
        homes: &[(&str, &str)],
        object: &mut Value,
        attributes: Attributes,
    ) -> Result<Arc<Stored>, NewError> {
        loop {
            let begun = {
                let mut state = self.shared.state.lock();
                let mut homes = homes.iter();
                if let Some((home, _)) = homes.find(|(shelf, key)| !state.will_stay(shelf, key)) {
                    return Err(NewError::Homeless((*home).into()));
                }
                self.begin_put_in(&mut state, shelf, key, Expect::Absent, object, &attributes)
            };
            let written = match begun {
                Ok((stored, durable)) => finish(stored, durable).await,
                Err(Refusal::Mismatch(mismatch)) => Err(WriteError::Mismatch(mismatch)),
                Err(Refusal::UnderWay(settling)) => {
                    settling.wait().await;
                    continue;
                }
            };
            return written.map_err(NewError::Write);
        }
    }

    /// Removes the key. Returns the last state, with the deletion's revision in it, when readers no longer see it.
    pub async fn delete(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Arc<Stored>, WriteError> {
        loop {
            match self.begin_delete(shelf, key, expect) {
                Ok((last, durable)) => return finish(last, durable).await,
                Err(Refusal::Mismatch(mismatch)) => return Err(WriteError::Mismatch(mismatch)),
                Err(Refusal::UnderWay(settling)) => settling.wait().await,
            }
        }
    }

    /// As [`Store::put`], for those who begin many writes and wait for all of them.
    pub fn begin_put(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
        object: &mut Value,
        attributes: &Attributes,
    ) -> Result<(Arc<Stored>, Durable), Refusal> {
        let mut state = self.shared.state.lock();
        self.begin_put_in(&mut state, shelf, key, expect, object, attributes)
    }

    fn begin_put_in(
        &self,
        state: &mut State,
        shelf: &str,
        key: &str,
        expect: Expect,
        object: &mut Value,
        attributes: &Attributes,
    ) -> Result<(Arc<Stored>, Durable), Refusal> {
        let current = self.check(state, shelf, key, expect)?;
        let revision = state.plans.revision + 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let own_key = current.as_ref().map(|current| current.key.clone());
        let own_key = own_key.unwrap_or_else(|| key.into());
        let stored = Arc::new(Stored::new(own_key, revision, object, attributes.clone()));
        let before = current.as_ref().and_then(|current| current.ties.as_deref());
        let disturbs = !object["metadata"]["deletionTimestamp"].is_null()
            || owners(before) != owners(stored.ties.as_deref());
        let plan = Plan {
            place: (state.shelf_name(shelf), stored.key.clone()),
            object: stored.clone(),
            deleted: None,
            disturbs,
        };
        let durable = self.begin(state, plan);
        Ok((stored, durable))
    }

    /// As [`Store::delete`], for those who begin many writes and wait for all of them.
    pub fn begin_delete(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
    ) -> Result<(Arc<Stored>, Durable), Refusal> {
        let mut state = self.shared.state.lock();
        let Some(current) = self.check(&mut state, shelf, key, expect)? else {
            return Err(Refusal::Mismatch(Mismatch(None)));
        };
        let revision = state.plans.revision + 1;
        let mut object = current.remains();
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let attributes = current.attributes().into_owned();
        let last = Stored::new(current.key.clone(), revision, &object, attributes);
        let last = Arc::new(last);
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let plan = Plan {
            place: (state.shelf_name(shelf), last.key.clone()),
            object: last.clone(),
            deleted: Some(uid.into()),
            disturbs: true,
        };
        let durable = self.begin(&mut state, plan);
        Ok((last, durable))
    }

    /// What will be there when all writes under way are done, for writers alone: it may never come to be, and then their
    /// writes do not either. Only what is on this shelf and whose keys start with `prefix`.
    pub fn latest(&self, shelf: &str, prefix: &str) -> Vec<Arc<Stored>> {
        let mut state = self.shared.state.lock();
        let name = state.shelf_name(shelf);
        let from = (name.clone(), prefix.into());
        let mut found: BTreeMap<Arc<str>, Arc<Stored>> = state
            .shelf(shelf)
            .objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        let plans = state.plans.latest.range(from..);
        for ((_, key), latest) in
            plans.take_while(|((shelf, key), _)| *shelf == name && key.starts_with(prefix))
        {
            match &latest.object {
                Some(stored) => found.insert(key.clone(), stored.clone()),
                None => found.remove(key),
            };
        }
        found.into_values().collect()
    }

    /// Forgets up to `most` of the objects that nobody has written for too long; says how many.
    pub fn expire(&self, most: usize) -> usize {
        let Some(expiry) = self.shared.options.expiry else {
            return 0;
        };
        let Ok(time) = self.shared.now().checked_sub(expiry.after) else {
            return 0;
        };
        let old: Vec<Arc<Stored>> = {
            let state = self.shared.state.lock();
            let reached = state.moments.reached(time);
            let objects = state.shelves.get(expiry.shelf);
            let objects = objects.into_iter().flat_map(|shelf| shelf.objects.values());
            objects
                .filter(|stored| stored.revision <= reached)
                .take(most)
                .cloned()
                .collect()
        };
        let mut count = 0;
        for stored in old {
            let expect = Expect::Revision(stored.revision);
            // Who wrote it meanwhile has made it young again. Who waits for all is told whether they are on disk.
            count += usize::from(self.begin_delete(expiry.shelf, &stored.key, expect).is_ok());
        }
        count
    }

    /// How often there may be something to forget; `None`: never.
    pub fn expires_every(&self) -> Option<Duration> {
        self.shared.options.expiry?;
        let step = Duration::try_from(self.shared.options.step()).ok()?;
        Some(step.max(Duration::from_secs(1)))
    }

    /// The key as it will be, if that is as expected.
    fn check(
        &self,
        state: &mut State,
        shelf: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Option<Arc<Stored>>, Refusal> {
        let place = (state.shelf_name(shelf), Arc::from(key));
        let planned = state.plans.latest.get(&place);
        let is_planned = planned.is_some();
        let current = match planned {
            Some(latest) => latest.object.clone(),
            None => state.shelf(shelf).objects.get(key).cloned(),
        };
        let fits = match (expect, &current) {
            (Expect::Absent, None) => true,
            (Expect::Revision(revision), Some(stored)) => stored.revision == revision,
            _ => false,
        };
        if fits {
            Ok(current)
        } else if is_planned {
            let settled = self.shared.settled.subscribe();
            Err(Refusal::UnderWay(Settling(settled)))
        } else {
            Err(Refusal::Mismatch(Mismatch(current)))
        }
    }

    fn begin(&self, state: &mut State, plan: Plan) -> Durable {
        state.plans.revision = plan.object.revision;
        let Some(journal) = &self.journal else {
            let now = self.shared.now();
            self.shared.publish(state, &[plan], now);
            return Durable::already();
        };
        let latest = Latest {
            revision: plan.object.revision,
            object: plan.deleted.is_none().then(|| plan.object.clone()),
        };
        let place = plan.place.clone();
        match journal.begin(plan) {
            Some(durable) => {
                state.plans.latest.insert(place, latest);
                durable
            }
            None => {
                self.shared.give_up(state);
                Durable::never()
            }
        }
    }
}

async fn finish(stored: Arc<Stored>, durable: Durable) -> Result<Arc<Stored>, WriteError> {
    if durable.wait().await {
        Ok(stored)
    } else {
        Err(WriteError::NotKept)
    }
}

impl Shared {
    /// What is on disk is shown, in the order of the revisions.
    pub(super) fn publish(&self, state: &mut State, plans: &[Plan], now: jiff::Timestamp) {
        let mut disturbed = 0;
        for plan in plans {
            state.apply(plan, now);
            if plan.disturbs {
                disturbed = plan.object.revision;
            }
        }
        if disturbed > 0 {
            self.disturbed.send_replace(disturbed);
        }
    }

    /// None of the writes under way will be: the next ones start from what readers see.
    pub(super) fn give_up(&self, state: &mut State) {
        state.plans = Plans::after(state.revision);
    }

    pub(super) fn tell_settled(&self) {
        self.settled
            .send_modify(|times| *times = times.wrapping_add(1));
    }
}

impl State {
    /// Whether an object will be there, and not on its way out, when all writes under way are done.
    fn will_stay(&mut self, shelf: &str, key: &str) -> bool {
        let place = (self.shelf_name(shelf), Arc::from(key));
        let latest = match self.plans.latest.get(&place) {
            Some(latest) => latest.object.clone(),
            None => self.shelf(shelf).objects.get(key).cloned(),
        };
        latest.is_some_and(|stored| {
            // Most need not be parsed.
            let may_go = memmem::find(&stored.bytes(), b"\"deletionTimestamp\"").is_some();
            !may_go || stored.value()["metadata"]["deletionTimestamp"].is_null()
        })
    }

    fn apply(&mut self, plan: &Plan, now: jiff::Timestamp) {
        let (place, object) = (&plan.place, &plan.object);
        let (name, key) = place;
        self.moments.note(object.revision, now);
        let latest = self.plans.latest.get(place);
        if latest.is_some_and(|latest| latest.revision == object.revision) {
            self.plans.latest.remove(place);
        }
        let objects = &mut self.shelf(name).objects;
        let before = match plan.deleted {
            Some(_) => objects.remove(key),
            None => objects.insert(key.clone(), object.clone()),
        };
        let ties_before = before.as_ref().and_then(|before| before.ties.as_deref());
        let change = match &plan.deleted {
            Some(uid) => {
                self.kinship.deleted(place, ties_before, uid);
                Change::Deleted
            }
            None => {
                let ties = object.ties.as_deref();
                self.kinship.written(place, ties_before, ties);
                if before.is_some() {
                    Change::Modified
                } else {
                    Change::Added
                }
            }
        };
        let event = Event {
            change,
            revision: object.revision,
            object: object.clone(),
            before,
        };
        self.publish(name, event);
    }
}
