//! Fair shares: limits what each client may use, so that the others still get what they need.
//!
//! Connections, requests, watches and bytes are each counted by who has them. One rule holds for all: nobody may come to
//! have more than is then left over, unless it is one thing and their only one. One client alone gets half, each of two a
//! third, and something is always free for who comes next. Members of `system:masters` are counted nowhere and never refused: somebody must be able to look what
//! is wrong.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::server::Limits;
use crate::auth::{ANONYMOUS, MASTERS};

/// Whoever is counted together: a user, or all service accounts of a namespace, of which a tenant can make many.
pub type Flow = Arc<str>;

/// Connections whose owner is not known yet, and what is sent on them.
const NEWCOMERS: &str = "";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Smaller answers and heads are not counted.
pub(super) const SMALL: u64 = 16 << 10;

/// Somebody has as much as they may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Too many requests, please try again later.")]
pub struct TooMuch;

/// What a server has to share out.
#[derive(Debug)]
pub struct Shares {
    connections: Arc<Pool>,
    requests: Arc<Pool>,
    watches: Arc<Pool>,
    /// Of heads and bodies that have come and are not answered.
    asked: Arc<Pool>,
    /// Of answers that have not gone out.
    answered: Arc<Pool>,
}

impl Shares {
    pub(super) fn new(limits: &Limits) -> Self {
        let pool = |total| Arc::new(Pool::new(total));
        Self {
            connections: pool(limits.connections as u64),
            requests: pool(limits.requests),
            watches: pool(limits.watches),
            asked: pool(limits.asked_bytes),
            answered: pool(limits.answered_bytes),
        }
    }
}

#[derive(Debug)]
struct Pool {
    total: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    by: HashMap<Flow, u64>,
}

impl Pool {
    fn new(total: u64) -> Self {
        let taken = Mutex::default();
        Self { total, taken }
    }

    fn take(self: &Arc<Self>, flow: &Flow, amount: u64) -> Result<Share, TooMuch> {
        let mut taken = self.taken.lock();
        let own = taken.by.get(flow).copied().unwrap_or_default();
        let has_nothing = own == 0;
        let own = own.saturating_add(amount);
        let all = taken.all.saturating_add(amount);
        let left = self.total.checked_sub(all).ok_or(TooMuch)?;
        if own > left && !has_nothing {
            return Err(TooMuch);
        }
        taken.all = all;
        taken.by.insert(flow.clone(), own);
        Ok(Share {
            pool: Arc::clone(self),
            flow: flow.clone(),
            amount,
        })
    }
}

/// A part of something, until it is dropped.
#[derive(Debug)]
struct Share {
    pool: Arc<Pool>,
    flow: Flow,
    amount: u64,
}

impl Share {
    fn is_of(&self, flow: &Flow) -> bool {
        self.flow == *flow
    }

    /// Takes over what is of the same kind and owner.
    fn merge(&mut self, other: &mut Share) -> bool {
        let fits = Arc::ptr_eq(&self.pool, &other.pool) && self.is_of(&other.flow);
        if fits {
            self.amount += std::mem::take(&mut other.amount);
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.pool.taken.lock();
        taken.all = taken.all.saturating_sub(self.amount);
        if let Some(own) = taken.by.get_mut(&self.flow) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                taken.by.remove(&self.flow);
            }
        }
    }
}

/// How long a request lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// Until it is answered.
    Short,
    /// As long as the client likes: a watch.
    Long,
}

/// Whose a connection is.
#[derive(Debug, Default)]
enum Owner {
    #[default]
    Unknown,
    /// Counted nowhere.
    Free,
    Known(Flow),
}

/// A connection, as far as others have to do without what it takes.
#[derive(Debug)]
pub(super) struct Seat {
    shares: Arc<Shares>,
    owner: Mutex<(Owner, Option<Share>)>,
}

impl Seat {
    pub(super) fn new(shares: Arc<Shares>) -> Self {
        Self {
            shares,
            owner: Mutex::default(),
        }
    }

    /// `None`: whose it is is not counted.
    fn flow(&self) -> Option<Flow> {
        match &self.owner.lock().0 {
            Owner::Unknown => Some(NEWCOMERS.into()),
            Owner::Free => None,
            Owner::Known(flow) => Some(flow.clone()),
        }
    }

    fn belongs_to(&self, owner: Owner) -> Result<(), TooMuch> {
        let mut current = self.owner.lock();
        let share = match &owner {
            Owner::Known(flow) => match current.1.take_if(|share| share.is_of(flow)) {
                Some(same) => Some(same),
                None => Some(self.shares.connections.take(flow, 1)?),
            },
            Owner::Unknown | Owner::Free => None,
        };
        *current = (owner, share);
        Ok(())
    }

    /// Counts a long head that is still coming.
    pub(super) fn head(&self, bytes: u64) -> Result<HeldBytes, TooMuch> {
        let flow = self.flow();
        let share = flow.map(|flow| self.shares.asked.take(&flow, bytes));
        Ok(HeldBytes(share.transpose()?))
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes(#[expect(dead_code, reason = "held for its drop")] Option<Share>);

/// One request, as an extension of it: who answers it says whose it is.
#[derive(Debug, Clone)]
pub struct Visit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seat: Arc<Seat>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    place: Option<Share>,
    bytes: Vec<Share>,
    is_over: bool,
    was_refused: bool,
}

impl Visit {
    pub(super) fn new(seat: Arc<Seat>) -> Self {
        let held = Mutex::default();
        Self(Arc::new(Inner { seat, held }))
    }

    /// The request is this user's. Refused when they have as much as they may have; the answer is 429 then.
    pub fn admit(&self, user: &str, groups: &[String], lasting: Lasting) -> Result<(), TooMuch> {
        let admitted = self.try_admit(user, groups, lasting);
        self.0.held.lock().was_refused = admitted.is_err();
        admitted
    }

    /// Then the connection is to end, too: it is one of too many.
    pub(super) fn was_refused(&self) -> bool {
        self.0.held.lock().was_refused
    }

    fn try_admit(&self, user: &str, groups: &[String], lasting: Lasting) -> Result<(), TooMuch> {
        let seat = &self.0.seat;
        if groups.iter().any(|group| group == MASTERS) {
            return seat.belongs_to(Owner::Free);
        }
        let flow = flow_of(user);
        seat.belongs_to(Owner::Known(flow.clone()))?;
        let pool = match lasting {
            Lasting::Short => &seat.shares.requests,
            Lasting::Long => &seat.shares.watches,
        };
        let place = pool.take(&flow, 1)?;
        let mut held = self.0.held.lock();
        if !held.is_over {
            held.place = Some(place);
        }
        Ok(())
    }

    /// Bytes of the request that are in memory from now on.
    pub(super) fn asks(&self, bytes: u64) -> Result<(), TooMuch> {
        self.holds(&self.0.seat.shares.asked, bytes)
    }

    /// Bytes of an answer that is in memory as a whole.
    pub(super) fn is_answered(&self, bytes: u64) -> Result<(), TooMuch> {
        if bytes <= SMALL {
            return Ok(());
        }
        self.holds(&self.0.seat.shares.answered, bytes)
    }

    fn holds(&self, pool: &Arc<Pool>, bytes: u64) -> Result<(), TooMuch> {
        let Some(flow) = self.0.seat.flow() else {
            return Ok(());
        };
        let mut share = pool.take(&flow, bytes)?;
        let mut held = self.0.held.lock();
        if !held.is_over && !held.bytes.iter_mut().any(|one| one.merge(&mut share)) {
            held.bytes.push(share);
        }
        Ok(())
    }

    /// All of it is given back, whoever still has the request.
    pub(super) fn is_over(&self) {
        let held = Held {
            is_over: true,
            ..Held::default()
        };
        drop(std::mem::replace(&mut *self.0.held.lock(), held));
    }
}

/// With whom a user is counted.
pub fn flow_of(user: &str) -> Flow {
    let namespace = user
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.split_once(':'))
        .map(|(namespace, _)| SERVICE_ACCOUNT.len() + namespace.len());
    match namespace {
        Some(end) => user[..end].into(),
        None if user.is_empty() => ANONYMOUS.into(),
        None => user.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(total: u64) -> Arc<Shares> {
        let limits = Limits {
            connections: 12,
            requests: total,
            watches: total,
            asked_bytes: 1000,
            answered_bytes: 100_000,
            ..Limits::default()
        };
        Arc::new(Shares::new(&limits))
    }

    fn visit(shares: &Arc<Shares>) -> Visit {
        Visit::new(Arc::new(Seat::new(shares.clone())))
    }

    fn let_in(shares: &Arc<Shares>, user: &str) -> Result<Visit, TooMuch> {
        let visit = visit(shares);
        visit.admit(user, &[], Lasting::Short)?;
        Ok(visit)
    }

    #[test]
    fn nobody_gets_more_than_what_is_left_over() {
        let shares = shares(12);
        let mut first = Vec::new();
        while let Ok(visit) = let_in(&shares, "a") {
            first.push(visit);
        }
        assert_eq!(first.len(), 6);
        let mut second = Vec::new();
        while let Ok(visit) = let_in(&shares, "b") {
            second.push(visit);
        }
        assert_eq!(second.len(), 3);
        // Whoever comes next finds something.
        let third = let_in(&shares, "c").unwrap();
        first[0].is_over();
        drop((first, second, third));
        assert_eq!(shares.requests.taken.lock().all, 0);
        assert!(shares.requests.taken.lock().by.is_empty());
        assert_eq!(shares.connections.taken.lock().all, 0);
    }

    #[test]
    fn accounts_of_one_namespace_are_one() {
        let shares = shares(12);
        let accounts = (0..100).map(|n| format!("{SERVICE_ACCOUNT}tenant:{n}"));
        let all: Vec<Visit> = accounts
            .filter_map(|one| let_in(&shares, &one).ok())
            .collect();
        assert_eq!(all.len(), 6);
        let_in(&shares, "system:serviceaccount:other:x").unwrap();
    }

    #[test]
    fn the_administrator_is_never_refused() {
        let shares = shares(2);
        let _one = let_in(&shares, "a").unwrap();
        let_in(&shares, "a").unwrap_err();
        let groups = [MASTERS.to_owned()];
        for _ in 0..100 {
            let visit = visit(&shares);
            visit.admit("root", &groups, Lasting::Short).unwrap();
            visit.asks(1 << 30).unwrap();
            visit.is_answered(1 << 40).unwrap();
        }
    }

    #[test]
    fn bytes_and_watches_are_counted_apart() {
        let shares = shares(4);
        let one = let_in(&shares, "a").unwrap();
        one.asks(400).unwrap();
        one.asks(101).unwrap_err();
        // One that is large is better than none.
        one.is_answered(60_000).unwrap();
        one.is_answered(20_000).unwrap_err();
        one.is_answered(SMALL).unwrap();
        let watch = visit(&shares);
        watch.admit("a", &[], Lasting::Long).unwrap();
        // What nobody owns yet is one owner, too.
        let newcomers = [visit(&shares), visit(&shares)];
        newcomers[0].asks(100).unwrap();
        newcomers[1].asks(201).unwrap_err();
        newcomers[1].asks(200).unwrap();
        one.is_over();
        newcomers[0].asks(200).unwrap();
    }

    #[test]
    fn a_connection_changes_hands() {
        let shares = shares(12);
        let seat = Arc::new(Seat::new(shares.clone()));
        for user in ["a", "a", "b"] {
            let visit = Visit::new(seat.clone());
            visit.admit(user, &[], Lasting::Short).unwrap();
        }
        let taken = shares.connections.taken.lock();
        assert_eq!((taken.all, taken.by.get("b")), (1, Some(&1)));
    }
}
