//! Does what the core wants done, and says how it ended.
//!
//! Actions run side by side, as many as are allowed at once; those about one pod run one after the other, in the order
//! in which the core wanted them. A condition of an earlier attempt must not overtake a binding.

mod claims;
mod groups;
mod pods;
mod request;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::events::{EventNote, Kind, Recorder, Reference};
use plimsoll_client::leader_election::Leadership;
use plimsoll_sched::action::{
    Action, ActionId, ActionKind, ActionResult, EventRecord, EventType, PodRef,
};
use plimsoll_sched::model::{Names, encode};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::extender::Extender;
use crate::owed::Owed;
use claims::{NewClaim, Reservation};
use groups::Group;
use request::{Refused, Verb};

/// Of an action whose task did not come to its end.
const UNFINISHED: &str = "the write was cut off";

/// How an action ended.
#[derive(Debug)]
pub struct Ended {
    pub id: ActionId,
    pub result: ActionResult,
    /// Of the API server's refusal.
    pub status: Option<u16>,
    pub what: Done,
    pub took: Duration,
}

/// What kind of action it was, for the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Done {
    Bind,
    Patch,
    Evict,
    /// A volume or its claim.
    Volume,
    /// A claim for extended resources.
    NewClaim,
    Write,
}

#[derive(Debug)]
struct Job {
    id: ActionId,
    /// Whose turn it uses.
    pod: Option<Arc<str>>,
    work: Work,
}

/// An action without what only the core knows.
#[derive(Debug)]
enum Work {
    Kind(ActionKind),
    /// By somebody else than the API server.
    BindBy(Arc<Extender>, PodRef, Box<str>),
    Reserve(Reservation),
    Create(NewClaim),
}

/// Reads something once.
pub async fn get(client: &kube::Client, path: &str) -> Result<bytes::Bytes, String> {
    let answer = request::ask(client, Verb::Get, path, bytes::Bytes::new(), false).await;
    answer.map_err(|refused| refused.to_string())
}

/// Runs actions. There is one, owned by whoever owns the core.
pub struct Executor {
    client: kube::Client,
    /// Who is not elected is asked nothing.
    leadership: Option<Leadership>,
    recorders: FxHashMap<Box<str>, Recorder>,
    ended: mpsc::UnboundedSender<Ended>,
    /// Pods that something is being done about, and what waits for its end.
    busy: FxHashMap<Arc<str>, VecDeque<Job>>,
    by_action: FxHashMap<ActionId, Arc<str>>,
    running: usize,
    waiting: usize,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor")
            .field("running", &self.running)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// `recorders` by the names of profiles.
    pub fn new(
        client: kube::Client,
        recorders: FxHashMap<Box<str>, Recorder>,
        leadership: Option<Leadership>,
    ) -> (Self, mpsc::UnboundedReceiver<Ended>) {
        let (ended, ends) = mpsc::unbounded_channel();
        let executor = Self {
            client,
            leadership,
            recorders,
            ended,
            busy: FxHashMap::default(),
            by_action: FxHashMap::default(),
            running: 0,
            waiting: 0,
        };
        (executor, ends)
    }

    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Actions that have not ended.
    pub fn load(&self) -> usize {
        self.running + self.waiting
    }

    /// Never waits; whoever asks for more than [`Self::load`] should allow is not stopped here.
    ///
    /// `binder`: who binds the pod, if not the API server.
    pub fn start(&mut self, action: Action, names: &Names, binder: Option<Arc<Extender>>) {
        let pod = match &action.kind {
            ActionKind::Event(event) => {
                self.record(event);
                return;
            }
            ActionKind::Bind { pod, .. } | ActionKind::PatchStatus { pod, .. } => Some(&pod.uid),
            ActionKind::Evict { victim, .. } => Some(&victim.uid),
            _ => None,
        };
        let pod = pod.cloned();
        let work = match action.kind {
            ActionKind::ReserveClaim {
                namespace,
                claim,
                uid,
                allocation,
                pod,
                ..
            } => Work::Reserve(Reservation {
                namespace,
                claim,
                uid,
                allocation: allocation.map(|given| encode::allocation(&given, names)),
                pod,
            }),
            ActionKind::CreateClaim {
                pod,
                requests,
                allocation,
                mappings,
            } => Work::Create(NewClaim {
                claim: encode::extended_claim(&pod, &requests),
                allocation: encode::allocation(&allocation, names),
                pod,
                mappings,
            }),
            ActionKind::Bind { pod, node } => match binder {
                Some(binder) => Work::BindBy(binder, pod, node),
                None => Work::Kind(ActionKind::Bind { pod, node }),
            },
            kind => Work::Kind(kind),
        };
        let job = Job {
            id: action.id,
            pod: pod.clone(),
            work,
        };
        if let Some(pod) = pod {
            if let Some(queue) = self.busy.get_mut(&pod) {
                self.waiting += 1;
                queue.push_back(job);
                return;
            }
            self.busy.insert(pod, VecDeque::new());
        }
        self.run(job);
    }

    /// To be told of everything that has ended.
    pub fn ended(&mut self, ended: &Ended) {
        self.running = self.running.saturating_sub(1);
        let Some(pod) = self.by_action.remove(&ended.id) else {
            return;
        };
        let Some(queue) = self.busy.get_mut(&pod) else {
            return;
        };
        match queue.pop_front() {
            Some(next) => {
                self.waiting -= 1;
                self.run(next);
            }
            None => {
                self.busy.remove(&pod);
            }
        }
    }

    fn run(&mut self, job: Job) {
        self.running += 1;
        if let Some(pod) = job.pod {
            self.by_action.insert(job.id, pod);
        }
        let client = self.client.clone();
        let leadership = self.leadership.clone();
        let began = Instant::now();
        let (id, what) = (job.id, job.work.what());
        let end = move |outcome: Result<(), Refused>| {
            let status = outcome.as_ref().err().and_then(Refused::code);
            let result = match outcome {
                Ok(()) => ActionResult::Done,
                Err(refused) if refused.is_gone() => ActionResult::Gone,
                Err(refused) => ActionResult::Failed(refused.to_string()),
            };
            Ended {
                id,
                result,
                status,
                what,
                took: began.elapsed(),
            }
        };
        // Whether it took effect is not known then.
        let lost = end(Err(Refused::Unreachable(UNFINISHED.to_owned())));
        let owed = Owed::new(self.ended.clone(), lost);
        tokio::spawn(async move {
            let work = job.work.perform(&client);
            // Extenders bind by clients of their own, so the client alone does not see to it.
            let outcome = match leadership {
                None => work.await,
                Some(leadership) => match leadership.while_leading(work).await {
                    Ok(outcome) => outcome,
                    Err(over) => Err(Refused::Unreachable(over.to_string())),
                },
            };
            if let Err(refused) = &outcome
                && !refused.is_gone()
            {
                tracing::debug!(?what, error = %refused, "a write was refused");
            }
            owed.settle(end(outcome));
        });
    }

    fn record(&self, event: &EventRecord) {
        let Some(recorder) = self.recorders.get(&event.controller) else {
            return;
        };
        recorder.record(EventNote {
            kind: match event.kind {
                EventType::Normal => Kind::Normal,
                EventType::Warning => Kind::Warning,
            },
            about: reference(&event.regarding),
            // The original names the other pod in the note only.
            related: None,
            reason: event.reason.to_owned(),
            action: event.action.to_owned(),
            text: event.note.clone(),
        });
    }
}

fn reference(pod: &PodRef) -> Reference {
    Reference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.to_string(),
        namespace: Some(pod.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        resource_version: Some(pod.resource_version.to_string()),
        field_path: None,
    }
}

impl Work {
    fn what(&self) -> Done {
        match self {
            Self::Kind(ActionKind::Bind { .. }) | Self::BindBy(..) => Done::Bind,
            Self::Kind(ActionKind::PatchStatus { .. }) => Done::Patch,
            Self::Kind(ActionKind::Evict { .. }) => Done::Evict,
            Self::Kind(ActionKind::BindVolume { .. } | ActionKind::SelectNode { .. }) => {
                Done::Volume
            }
            Self::Create(_) => Done::NewClaim,
            _ => Done::Write,
        }
    }

    async fn perform(&self, client: &kube::Client) -> Result<(), Refused> {
        match self {
            Self::Reserve(wish) => claims::reserve(client, wish).await,
            Self::Create(wish) => claims::create(client, wish).await,
            Self::BindBy(binder, pod, node) => {
                match binder.bind(pod, node).await {
                    // The next in turn is the API server.
                    Err(error) if binder.is_ignorable() => {
                        binder.passed_over("bind", &error);
                        pods::bind(client, pod, node).await
                    }
                    outcome => {
                        if outcome.is_ok() {
                            binder.answered("bind");
                        }
                        outcome.map_err(Refused::Unreachable)
                    }
                }
            }
            Self::Kind(ActionKind::Bind { pod, node }) => pods::bind(client, pod, node).await,
            Self::Kind(ActionKind::PatchStatus {
                pod,
                condition,
                nominated,
            }) => pods::patch_status(client, pod, condition.as_ref(), nominated).await,
            Self::Kind(ActionKind::Evict {
                victim,
                observed_generation,
                message,
                ..
            }) => match pods::evict(client, victim, *observed_generation, message).await {
                // Another pod has its name by now.
                Err(refused) if refused.is_conflict() => Err(Refused::Status {
                    code: 404,
                    reason: "NotFound".to_owned(),
                    message: refused.to_string(),
                }),
                outcome => outcome,
            },
            Self::Kind(ActionKind::BindVolume {
                volume,
                namespace,
                claim,
                claim_uid,
                ..
            }) => claims::bind_volume(client, volume, (namespace, claim, claim_uid)).await,
            Self::Kind(ActionKind::SelectNode {
                namespace,
                claim,
                resource_version,
                node,
            }) => claims::select_node(client, (namespace, claim, resource_version), node).await,
            Self::Kind(ActionKind::DeallocateClaim {
                namespace,
                claim,
                uid,
                ..
            }) => claims::deallocate(client, namespace, claim, uid).await,
            Self::Kind(ActionKind::DeleteClaim {
                namespace,
                claim,
                uid,
            }) => claims::delete(client, namespace, claim, uid).await,
            Self::Kind(ActionKind::PatchGroup {
                namespace,
                name,
                uid,
                observed_generation,
                condition,
            }) => {
                let group = Group {
                    namespace,
                    name,
                    uid,
                    generation: *observed_generation,
                };
                groups::patch_status(client, group, condition).await
            }
            // Recorded and taken apart before.
            Self::Kind(
                ActionKind::Event(_)
                | ActionKind::ReserveClaim { .. }
                | ActionKind::CreateClaim { .. },
            ) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use plimsoll_sched::action::NominatedNode;

    use super::*;

    fn condition_of(pod: &str) -> Action {
        Action {
            id: ActionId(pod.len() as u64),
            kind: ActionKind::PatchStatus {
                pod: PodRef {
                    namespace: "default".into(),
                    name: pod.into(),
                    uid: pod.into(),
                    resource_version: "1".into(),
                },
                condition: None,
                nominated: NominatedNode::Keep,
            },
        }
    }

    fn a_defect() -> Result<Response<Body>, std::convert::Infallible> {
        panic!("a defect")
    }

    /// As many as may be under way at once, and more that wait for them: a defect in each of them leaks no place.
    #[tokio::test]
    async fn a_write_that_panics_gives_its_place_back() {
        let broken = |_: Request<Body>| async { a_defect() };
        let client = kube::Client::new(tower::service_fn(broken), "default");
        let (mut executor, mut ends) = Executor::new(client, FxHashMap::default(), None);
        let names = Names::default();
        for number in 1..=60 {
            let mut action = condition_of(&"p".repeat(1 + number % 30));
            action.id = ActionId(number as u64);
            executor.start(action, &names, None);
        }
        assert_eq!(executor.load(), 60);
        for _ in 0..60 {
            let ended = ends.recv().await.unwrap();
            assert_eq!(ended.result, ActionResult::Failed(UNFINISHED.to_owned()));
            executor.ended(&ended);
        }
        assert_eq!(executor.load(), 0);
        assert!(executor.busy.is_empty() && executor.by_action.is_empty());
    }
}
