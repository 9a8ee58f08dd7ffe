//! Who asked for what, written down: `audit.k8s.io/v1` events, as a policy wants them.

mod log;
mod policy;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{AUTHORIZATION, HeaderMap, USER_AGENT};
use http::request::Parts;
use parking_lot::Mutex;
use plimsoll_apimachinery::kept::Keepsake;
use plimsoll_apimachinery::request::RequestInfo;
use plimsoll_apimachinery::status::StatusError;
use plimsoll_metrics::Exposition;
use plimsoll_serving::Peer;
use plimsoll_serving::auth::{Impersonator, UserInfo};
use plimsoll_waiting::Repeated;
use serde_json::{Map, Value, json};

pub use log::{Log, LogConfig};
pub use policy::{Level, Policy, PolicyError, Stage};

/// Clones write to the same log.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    policy: Policy,
    log: Log,
    events: AtomicU64,
    failed: AtomicU64,
    trouble: Mutex<Repeated>,
}

/// A request that is audited; told of its end when its answer is there to the last byte.
#[derive(Debug)]
pub struct Audited {
    audit: Audit,
    event: Map<String, Value>,
    stages: Vec<Stage>,
}

/// What kept a request from being answered, for whoever writes it down.
#[derive(Debug, Clone)]
pub struct Refused(pub StatusError);

impl Audit {
    pub fn new(policy: Policy, log: Log) -> Self {
        Self(Arc::new(Shared {
            policy,
            log,
            events: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            trouble: Mutex::default(),
        }))
    }

    /// What is counted.
    pub fn write(audit: Option<&Self>, page: &mut Exposition) {
        let count = |of: fn(&Shared) -> &AtomicU64| {
            audit.map_or(0, |audit| of(&audit.0).load(Ordering::Relaxed)) as f64
        };
        let name = "apiserver_audit_event_total";
        page.family(name, "counter", "[ALPHA] Events that were audited.");
        page.sample(name, &[], count(|shared| &shared.events));
        let failed = count(|shared| &shared.failed);
        if failed > 0.0 {
            let name = "apiserver_audit_error_total";
            let help = "[ALPHA] Events that could not be written down.";
            page.family(name, "counter", help);
            page.sample(name, &[("plugin", "log")], failed);
        }
    }

    /// A request whose sender is known, or is known to be nobody. `None`: the policy does not want it.
    pub fn begin(
        &self,
        head: &Parts,
        info: &RequestInfo,
        user: Option<&UserInfo>,
        audit_id: &str,
    ) -> Option<Audited> {
        // Rules are about who asks, not about whom they act as.
        let acts_for = head.extensions.get::<Impersonator>();
        let asker = acts_for.map(|Impersonator(asker)| asker).or(user);
        let verdict = self.0.policy.verdict(info, asker);
        if verdict.level == Level::None {
            return None;
        }
        let mut event = Map::new();
        let mut put = |key: &str, value: Value| {
            event.insert(key.to_owned(), value);
        };
        put("kind", "Event".into());
        put("apiVersion", "audit.k8s.io/v1".into());
        put("level", json!(verdict.level));
        put("auditID", audit_id.into());
        let uri = head.uri.path_and_query().map_or("/", |path| path.as_str());
        put("requestURI", uri.into());
        put("verb", info.verb.into());
        put("user", asker.map_or_else(|| json!({}), user_of));
        if acts_for.is_some()
            && let Some(user) = user
        {
            put("impersonatedUser", user_of(user));
        }
        let addresses = sources(&head.headers, head.extensions.get::<Peer>());
        if !addresses.is_empty() {
            put("sourceIPs", json!(addresses));
        }
        if let Some(agent) = head.headers.get(USER_AGENT) {
            put(
                "userAgent",
                String::from_utf8_lossy(agent.as_bytes()).into(),
            );
        }
        if let Some(object) = object_of(info) {
            put("objectRef", object);
        }
        put("requestReceivedTimestamp", now().into());
        let stages = [
            Stage::RequestReceived,
            Stage::ResponseStarted,
            Stage::ResponseComplete,
        ];
        let stages = stages.into_iter().filter(|stage| verdict.wants(*stage));
        let audited = Audited {
            audit: self.clone(),
            event,
            stages: stages.collect(),
        };
        if asker.is_some() {
            audited.tell(Stage::RequestReceived);
        }
        Some(audited)
    }
}

impl Audited {
    /// It was decided whether they may.
    pub fn judged(&mut self, decision: &str, reason: &str) {
        let annotations = json!({
            "authorization.k8s.io/decision": decision,
            "authorization.k8s.io/reason": reason,
        });
        self.event.insert("annotations".to_owned(), annotations);
    }

    /// The answer, as far as its head says.
    pub fn answered(&mut self, code: u16, refused: Option<&StatusError>) {
        let mut status = Map::new();
        status.insert("metadata".to_owned(), json!({}));
        if let Some(refused) = refused {
            status.insert("status".to_owned(), "Failure".into());
            status.insert("message".to_owned(), refused.message.clone().into());
            status.insert("reason".to_owned(), refused.reason.into());
            if let Some(details) = &refused.details {
                status.insert("details".to_owned(), details.clone().into());
            }
        }
        status.insert("code".to_owned(), code.into());
        self.event
            .insert("responseStatus".to_owned(), status.into());
    }

    /// They were sent away without it being known who they are.
    pub fn unknown(mut self, head: &Parts) {
        let message = match tried(head).join(", ") {
            none if none.is_empty() => "Authentication failed, no credentials provided".to_owned(),
            tried => format!("Authentication failed, attempted: {tried}"),
        };
        let status = json!({"metadata": {}, "status": "Failure", "message": message, "code": 401});
        self.event.insert("responseStatus".to_owned(), status);
        self.tell(Stage::ResponseStarted);
        self.stages.clear();
    }

    fn tell(&self, stage: Stage) {
        if !self.stages.contains(&stage) {
            return;
        }
        let mut event = self.event.clone();
        event.insert("stage".to_owned(), json!(stage));
        event.insert("stageTimestamp".to_owned(), now().into());
        let mut line = Value::from(event).to_string();
        line.push('\n');
        let shared = &self.audit.0;
        match shared.log.write(line.as_bytes()) {
            Ok(()) => {
                if let Some(over) = shared.trouble.lock().well() {
                    let failures = over.failures;
                    tracing::info!(failures, "the audit log is written again");
                }
                shared.events.fetch_add(1, Ordering::Relaxed)
            }
            Err(error) => {
                if let Some(said) = shared.trouble.lock().failed() {
                    let times = said.times;
                    tracing::warn!(%error, times, "cannot write to the audit log");
                }
                shared.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

impl Keepsake for Audited {
    fn ends(&mut self, _: u64) {
        self.tell(Stage::ResponseComplete);
    }
}

/// By what somebody wanted to show who they are.
fn tried(head: &Parts) -> Vec<&'static str> {
    let scheme = head.headers.get(AUTHORIZATION);
    let scheme = scheme
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let begins = |with: &str| {
        let start = scheme.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    let peer = head.extensions.get::<Peer>();
    [
        ("basic", begins("basic ")),
        ("bearer", begins("bearer ")),
        (
            "x509",
            peer.is_some_and(|peer| !peer.certificates.is_empty()),
        ),
    ]
    .into_iter()
    .filter_map(|(name, is_it)| is_it.then_some(name))
    .collect()
}

fn user_of(user: &UserInfo) -> Value {
    let mut out = json!({"username": user.name});
    if !user.uid.is_empty() {
        out["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        out["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

fn object_of(info: &RequestInfo) -> Option<Value> {
    let path = info.resource.as_ref()?;
    let mut out = Map::new();
    for (key, text) in [
        ("resource", &path.resource),
        ("namespace", &path.namespace),
        ("name", &path.name),
        ("apiGroup", &path.group),
        ("apiVersion", &path.version),
        ("subresource", &path.subresource),
    ] {
        if !text.is_empty() {
            out.insert(key.to_owned(), text.clone().into());
        }
    }
    Some(out.into())
}

/// Those whom proxies tell of, and whoever is at the other end.
fn sources(headers: &HeaderMap, peer: Option<&Peer>) -> Vec<String> {
    let texts = |name: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let parts = texts.flat_map(|text| text.split(','));
        let addresses = parts.filter_map(|part| part.trim().parse::<IpAddr>().ok());
        addresses.collect::<Vec<IpAddr>>()
    };
    let mut all = texts("x-forwarded-for");
    if all.is_empty() {
        all = texts("x-real-ip");
    }
    if let Some(peer) = peer.map(|peer| peer.address.ip())
        && all.last() != Some(&peer)
    {
        all.push(peer);
    }
    all.iter().map(ToString::to_string).collect()
}

/// With microseconds.
fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
