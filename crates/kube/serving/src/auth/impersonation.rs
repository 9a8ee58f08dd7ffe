//! Impersonation: which user a request acts as, and whether it may.
//!
//! There are several ways to be allowed to. The narrow ones want a right to act as that user (`impersonate:MODE`) and a
//! right to do just this while doing so (`impersonate-on:MODE:VERB`); the old one, `impersonate`, is for everything. The
//! narrow ones are tried first, unless somebody was allowed in another way before; what is said of a refusal is what the
//! first of them said.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::HeaderName;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use parking_lot::Mutex;

use super::authorizer::Access;
use super::service_account;
use super::user::{ANONYMOUS, MASTERS, UNAUTHENTICATED, UserInfo};
use plimsoll_apimachinery::field::{FieldError, Path, summary};
use plimsoll_golang::strconv::quote;
use plimsoll_golang::url::unescape;
use plimsoll_metrics::{CounterVec, Exposition, HistogramVec};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const NODES: &str = "system:nodes";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Where a service account's token says on which node its pod is.
const NODE_OF_POD: &str = "authentication.kubernetes.io/node-name";
const ASSOCIATED_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// Whoever wants so many may be allowed all of them at once.
const MANY: usize = 4;
/// How many users' ways are remembered.
const REMEMBERED: usize = 10_000;

/// Whoever knows what a user may.
pub trait ImpersonationAuthorizer {
    type Refusal;

    fn confirm(
        &self,
        user: &UserInfo,
        access: &Access,
    ) -> impl Future<Output = Result<(), Self::Refusal>>;

    fn refuse(&self, user: &UserInfo, access: &Access, why: &str) -> Self::Refusal;
}

/// Which way each user was last allowed: it is tried first, and so it is what a refusal speaks of. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct ImpersonationModeCache(Arc<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    modes: Mutex<HashMap<String, Mode>>,
    attempts: Tally,
    checks: Tally,
}

/// How often, and how long it took, by what came of it and the way.
#[derive(Debug)]
struct Tally {
    total: CounterVec<2>,
    took: HistogramVec<2>,
}

impl Default for Tally {
    fn default() -> Self {
        let labels = ["decision", "mode"];
        // Doubling from a millisecond to 16 seconds.
        let bounds: Vec<f64> = (0..15).map(|power| 0.001 * f64::from(1 << power)).collect();
        Self {
            total: CounterVec::new(labels),
            took: HistogramVec::new(labels, bounds),
        }
    }
}

impl Tally {
    fn count(&self, allowed: bool, mode: &str, took: Duration) {
        let decision = if allowed { "allowed" } else { "denied" };
        self.total.count([decision, mode]);
        self.took.observe([decision, mode], took.as_secs_f64());
    }

    fn write(&self, page: &mut Exposition, what: &str) {
        self.took.write(
            page,
            &format!("apiserver_impersonation_{what}_duration_seconds"),
            "[ALPHA] Time that it took to say whether somebody may act as somebody else.",
        );
        self.total.write(
            page,
            &format!("apiserver_impersonation_{what}_total"),
            "[ALPHA] Times that it was asked whether somebody may act as somebody else.",
        );
    }
}

impl ImpersonationModeCache {
    /// How impersonation goes.
    pub(super) fn write(&self, page: &mut Exposition) {
        self.0.attempts.write(page, "attempts");
        self.0.checks.write(page, "authorization_attempts");
    }

    fn of(&self, user: &str) -> Option<Mode> {
        self.0.modes.lock().get(user).copied()
    }

    fn note(&self, user: &str, mode: Mode) {
        let mut modes = self.0.modes.lock();
        if modes.len() >= REMEMBERED {
            modes.clear();
        }
        modes.insert(user.to_owned(), mode);
    }
}

/// Whom a request wants to act as, as its headers say.
#[derive(Debug, Clone, PartialEq)]
pub struct Impersonation(UserInfo);

/// A way to be allowed to.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    mode: Mode,
    /// Whose rights are asked about.
    asker: UserInfo,
    /// All of them must be had.
    needs: Vec<Need>,
    /// Who they are then.
    user: UserInfo,
}

#[derive(Debug, Clone, PartialEq)]
enum Need {
    One(Access),
    /// The first alone does, or else all the others.
    Many(Access, Vec<Access>),
    /// It cannot be had this way.
    Never(Access, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    /// In the order in which they are tried.
    const ALL: [Self; 5] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
        Self::Legacy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// As it is counted.
    fn shown(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            narrow => narrow.name(),
        }
    }

    fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            narrow => format!("impersonate:{}", narrow.name()),
        }
    }

    fn is_for(self, wanted: &UserInfo, asker: &UserInfo) -> bool {
        let bare = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = service_account::node_of_user_name(&wanted.name);
        let account = service_account::split_user_name(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let on = asker.extra.get(NODE_OF_POD).map(Vec::as_slice);
                let is_there = node.is_some_and(|node| matches!(on, Some([on]) if on == node));
                bare && is_there && service_account::split_user_name(&asker.name).is_some()
            }
            Self::ArbitraryNode => bare && node.is_some(),
            Self::ServiceAccount => bare && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

impl Impersonation {
    /// What the headers ask for; `None` where they do not. The error is a message for a bad request.
    pub fn wanted(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let texts = |name: &str| {
            let values = headers.get_all(name).iter();
            let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            values.collect::<Vec<_>>()
        };
        let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
        let mut wanted = UserInfo {
            name: first(USER),
            uid: first(UID),
            groups: texts(GROUP),
            ..UserInfo::default()
        };
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                let key = unescape(key, false).unwrap_or_else(|| key.to_owned());
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                wanted.extra.entry(key).or_default().push(value);
            }
        }
        if !wanted.name.is_empty() {
            return Ok(Some(Self(wanted)));
        }
        if wanted == UserInfo::default() {
            return Ok(None);
        }
        let shown = shown(&wanted);
        Err(format!(
            "requested {shown} without impersonating a user name"
        ))
    }

    /// The user as whom `asker` may do what they want to.
    pub async fn resolve<J: ImpersonationAuthorizer>(
        &self,
        asker: &UserInfo,
        access: &Access,
        habits: &ImpersonationModeCache,
        judge: &J,
    ) -> Result<UserInfo, J::Refusal> {
        let began = Instant::now();
        let attempts = &habits.0.attempts;
        let mut refusal = None;
        for way in self.ways(asker, access, habits.of(&asker.name)) {
            match way.is_open(judge, &habits.0.checks).await {
                Ok(()) => {
                    attempts.count(true, way.mode.shown(), began.elapsed());
                    habits.note(&asker.name, way.mode);
                    return Ok(way.user);
                }
                Err(refused) => refusal = refusal.or(Some(refused)),
            }
        }
        attempts.count(false, "", began.elapsed());
        // There is always a way to be refused.
        let nobody = || judge.refuse(asker, access, "all impersonation modes failed");
        Err(refusal.unwrap_or_else(nobody))
    }

    /// Ways in which `asker` might be allowed, for what they want to do, the usual one first.
    fn ways(&self, asker: &UserInfo, access: &Access, usual: Option<Mode>) -> Vec<Way> {
        let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != usual);
        let modes = usual.into_iter().chain(others);
        let modes = modes.filter(|mode| mode.is_for(&self.0, asker));
        modes.map(|mode| self.way(mode, asker, access)).collect()
    }

    fn way(&self, mode: Mode, asker: &UserInfo, access: &Access) -> Way {
        let mut needs = Vec::new();
        if mode != Mode::Legacy {
            needs.push(Need::One(on(mode, access)));
        }
        needs.push(Need::One(self.name_need(mode)));
        if !self.0.uid.is_empty() {
            let uid = attributes(mode, AUTHENTICATION, "uids", &self.0.uid);
            needs.push(Need::One(Access::resource(uid)));
        }
        needs.extend(self.group_needs(mode));
        needs.extend(self.extra_needs(mode));
        let mut asker = asker.clone();
        if mode == Mode::AssociatedNode {
            // Which node it is has been seen to; the right is the same for all of them.
            let keys = asker.extra.keys().cloned().collect();
            asker.extra = [(ASSOCIATED_KEYS.to_owned(), keys)].into();
        }
        Way {
            mode,
            asker,
            needs,
            user: self.becomes(mode),
        }
    }

    fn name_need(&self, mode: Mode) -> Access {
        let name = &self.0.name;
        let group = of_names(mode);
        let mut need = attributes(mode, group, "users", name);
        if let Some((namespace, account)) = service_account::split_user_name(name) {
            need = attributes(mode, group, "serviceaccounts", account);
            need.namespace = Some(namespace.to_owned());
        }
        let node = service_account::node_of_user_name(name);
        if let Some(node) = node.filter(|_| mode != Mode::Legacy) {
            let node = match mode {
                Mode::AssociatedNode => "*",
                _ => node,
            };
            need = attributes(mode, group, "nodes", node);
        }
        Access::resource(need)
    }

    fn group_needs(&self, mode: Mode) -> Vec<Need> {
        let wanted = &self.0.groups;
        let need = |name: &str| Access::resource(attributes(mode, of_names(mode), "groups", name));
        if mode != Mode::Legacy {
            if wanted.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return vec![Need::Never(need(""), why.to_owned())];
            }
            if wanted.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return vec![Need::Never(need(MASTERS), why.to_owned())];
            }
        }
        let each: Vec<Access> = wanted.iter().map(|group| need(group)).collect();
        together(mode, need("*"), each, wanted.len())
    }

    fn extra_needs(&self, mode: Mode) -> Vec<Need> {
        let wanted = &self.0.extra;
        let need = |key: &str, value: &str| {
            let mut need = attributes(mode, AUTHENTICATION, "userextras", value);
            need.subresource = filled(key);
            Access::resource(need)
        };
        if mode != Mode::Legacy {
            let wrong = wanted
                .iter()
                .find_map(|(key, values)| odd_extra(key, values));
            if let Some(why) = wrong {
                return vec![Need::Never(need("", ""), why)];
            }
        }
        let each: Vec<Access> = wanted
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |value| need(key, value)))
            .collect();
        let count = each.len();
        together(mode, need("*", "*"), each, count)
    }

    fn becomes(&self, mode: Mode) -> UserInfo {
        let mut user = self.0.clone();
        if mode != Mode::Legacy && service_account::node_of_user_name(&user.name).is_some() {
            user.groups = vec![NODES.to_owned()];
        }
        if user.groups.is_empty()
            && let Some((namespace, _)) = service_account::split_user_name(&user.name)
        {
            user.groups = service_account::groups(namespace);
        }
        let mut user = user.authenticated();
        if user.name == ANONYMOUS && !user.in_group(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        }
        user
    }

    /// Takes the headers away: whoever is behind us must not act on them again.
    pub fn strip(headers: &mut HeaderMap) {
        let ours = |name: &&HeaderName| {
            let name = name.as_str();
            matches!(name, USER | GROUP | UID) || name.starts_with(EXTRA)
        };
        let names: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

impl Way {
    async fn is_open<J: ImpersonationAuthorizer>(
        &self,
        judge: &J,
        checks: &Tally,
    ) -> Result<(), J::Refusal> {
        for need in &self.needs {
            match need {
                Need::One(access) => self.confirm(access, judge, checks).await?,
                Need::Many(all, each) => {
                    if self.confirm(all, judge, checks).await.is_ok() {
                        continue;
                    }
                    for access in each {
                        self.confirm(access, judge, checks).await?;
                    }
                }
                Need::Never(access, why) => return Err(judge.refuse(&self.asker, access, why)),
            }
        }
        Ok(())
    }
}

impl Way {
    async fn confirm<J: ImpersonationAuthorizer>(
        &self,
        access: &Access,
        judge: &J,
        checks: &Tally,
    ) -> Result<(), J::Refusal> {
        let began = Instant::now();
        let confirmed = judge.confirm(&self.asker, access).await;
        checks.count(confirmed.is_ok(), self.mode.shown(), began.elapsed());
        confirmed
    }
}

/// What the narrow ways do not take, and why.
fn odd_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let problems = path_problems(key);
    if !problems.is_empty() {
        let problems = summary(&problems);
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: {problems}"
        ));
    }
    if key.chars().any(char::is_uppercase) {
        let key = quote(key);
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    let has_empty = values.iter().any(String::is_empty);
    has_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// The same, while acting as somebody else.
fn on(mode: Mode, access: &Access) -> Access {
    let mut access = access.clone();
    let verb = match &mut access {
        Access::Resource(resource) => &mut resource.verb,
        Access::Path(path) => &mut path.verb,
    };
    let plain = verb.take().unwrap_or_default();
    *verb = Some(format!("impersonate-on:{}:{plain}", mode.name()));
    access
}

fn together(mode: Mode, all: Access, each: Vec<Access>, count: usize) -> Vec<Need> {
    if mode != Mode::Legacy && count >= MANY {
        return vec![Need::Many(all, each)];
    }
    each.into_iter().map(Need::One).collect()
}

/// Users and groups belonged to no group of resources once.
fn of_names(mode: Mode) -> &'static str {
    match mode {
        Mode::Legacy => "",
        _ => AUTHENTICATION,
    }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn attributes(mode: Mode, group: &str, resource: &str, name: &str) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some(mode.verb()),
        group: filled(group),
        version: Some("v1".to_owned()),
        resource: Some(resource.to_owned()),
        name: filled(name),
        ..ResourceAttributes::default()
    }
}

/// What keeps a key from being like `acme.io/foo`.
fn path_problems(key: &str) -> Vec<FieldError> {
    let field = Path::new("extra").child("key");
    let halves = key.split_once('/');
    let Some((host, path)) = halves.filter(|(host, path)| !host.is_empty() && !path.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(&field, key, why)];
    };
    let mut problems = Vec::new();
    if host.len() > 253 {
        let why = "must be no more than 253 characters";
        problems.push(FieldError::invalid(&field, host, why));
    }
    if !host.split('.').all(service_account::is_subdomain_part) {
        let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        problems.push(FieldError::invalid(&field, host, why));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(plain) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        problems.push(FieldError::invalid(&field, path, why));
    }
    problems
}

/// As Go shows it in a message.
fn shown(user: &UserInfo) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let pairs = user.extra.iter();
            let pairs: Vec<String> = pairs
                .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
                .collect();
            format!("map[string][]string{{{}}}", pairs.join(", "))
        }
    };
    let (name, uid) = (quote(&user.name), quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
#[path = "impersonation_tests.rs"]
mod tests;
