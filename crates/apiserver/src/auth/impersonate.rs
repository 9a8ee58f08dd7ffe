//! Acting as somebody else: `Impersonate-*` headers, and who may send them.
//!
//! There are several ways to be permitted, tried one after the other. The older one asks for the verb `impersonate` on
//! the user and everything told about them. The newer ones are narrower: they also ask whether the request itself may
//! be made that way (`impersonate-on:user-info:list` on pods), and each is for one sort of user.

use std::collections::BTreeMap;

use http::HeaderMap;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::rules::{Action, Target};
use super::service_account::{self, EXTRA_NODE_NAME};
use super::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, forbidden};
use crate::field::{FieldError, Path, quote, summary};
use crate::status::Failure;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many on, permission for all is asked for before permission for each.
const MANY: usize = 4;
/// How many users' ways are remembered.
const REMEMBERED: usize = 10_000;

/// Whether a user may do something, `Err` being the refusal.
pub(super) type Confirm<'a> = &'a dyn Fn(&User, Action<'_>) -> Result<(), Failure>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that it runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// Remembers which way each user was last permitted: it is tried first, and so it is what a refusal speaks of.
#[derive(Debug, Default)]
pub(super) struct Impersonation(Mutex<FxHashMap<String, Mode>>);

impl Impersonation {
    /// The user that the request is to be made as: `requestor` where no header says otherwise.
    pub(super) fn resolve(
        &self,
        requestor: User,
        headers: &HeaderMap,
        request: Action<'_>,
        confirm: Confirm<'_>,
    ) -> Result<User, Failure> {
        let Some(wanted) = wanted_user(headers)? else {
            return Ok(requestor);
        };
        let remembered = self.0.lock().get(&requestor.name).copied();
        let others = MODES.into_iter().filter(|mode| Some(*mode) != remembered);
        let mut refusal = None;
        for mode in remembered.into_iter().chain(others) {
            match mode.check(&requestor, &wanted, request, confirm) {
                Ok(Some(user)) => {
                    self.remember(requestor.name, mode);
                    return Ok(user);
                }
                Ok(None) => {}
                Err(failure) => refusal = refusal.or(Some(failure)),
            }
        }
        Err(refusal.unwrap_or_else(|| Failure::server_error("all impersonation modes failed")))
    }

    fn remember(&self, user: String, mode: Mode) {
        let mut modes = self.0.lock();
        if modes.len() >= REMEMBERED {
            modes.clear();
        }
        modes.insert(user, mode);
    }
}

/// Takes away the headers once they have been obeyed, so that nobody obeys them again.
pub fn strip(headers: &mut HeaderMap) {
    for name in [USER, UID, GROUP] {
        headers.remove(name);
    }
    let names = headers.keys();
    let extra = names.filter(|name| name.as_str().starts_with(EXTRA_PREFIX));
    for name in extra.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// What the headers ask for, exactly.
fn wanted_user(headers: &HeaderMap) -> Result<Option<User>, Failure> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name| headers.get(name).map(text).unwrap_or_default();
    let mut wanted = User {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        ..User::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            let values = wanted.extra.entry(unescaped(key)).or_default();
            values.push(text(value));
        }
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if only_name(&wanted) {
        return Ok(None);
    }
    Err(Failure::bad_request(format!(
        "requested {} without impersonating a user name",
        go_syntax(&wanted)
    )))
}

fn only_name(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    fn is_for(self, requestor: &User, wanted: &User) -> bool {
        let node = service_account::node_of_user_name(&wanted.name);
        let account = service_account::split_user_name(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let runs_on = service_account::single_extra(requestor, EXTRA_NODE_NAME);
                let is_account = service_account::split_user_name(&requestor.name).is_some();
                only_name(wanted) && is_account && node.is_some_and(|node| node == runs_on)
            }
            Self::ArbitraryNode => only_name(wanted) && node.is_some(),
            Self::ServiceAccount => only_name(wanted) && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    /// The user as whom to go on; `None` where this way is not for such users.
    fn check(
        self,
        requestor: &User,
        wanted: &User,
        request: Action<'_>,
        confirm: Confirm<'_>,
    ) -> Result<Option<User>, Failure> {
        if !self.is_for(requestor, wanted) {
            return Ok(None);
        }
        if self != Self::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.name(), request.verb);
            let on = request.on;
            confirm(requestor, Action { verb: &verb, on })?;
        }
        let checks = Checks {
            mode: self,
            verb: &self.verb(),
            requestor,
            confirm,
        };
        checks.name(&wanted.name)?;
        checks.uid(&wanted.uid)?;
        checks.groups(&wanted.groups)?;
        checks.extra(&wanted.extra)?;
        Ok(Some(self.completed(wanted)))
    }

    /// With the groups that such a user has.
    fn completed(self, wanted: &User) -> User {
        let mut user = wanted.clone();
        if self != Self::Legacy && service_account::node_of_user_name(&user.name).is_some() {
            user.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, _)) = service_account::split_user_name(&wanted.name)
            && user.groups.is_empty()
        {
            user.groups = service_account::groups(namespace);
        }
        let implied = match user.name.as_str() {
            ANONYMOUS => Some(UNAUTHENTICATED),
            _ if user.in_group(UNAUTHENTICATED) => None,
            _ => Some(AUTHENTICATED),
        };
        if let Some(group) = implied.filter(|group| !user.in_group(group)) {
            user.groups.push(group.to_owned());
        }
        user
    }
}

/// Permission for each thing told about the wanted user.
struct Checks<'a> {
    mode: Mode,
    verb: &'a str,
    requestor: &'a User,
    confirm: Confirm<'a>,
}

impl Checks<'_> {
    fn action<'b>(&'b self, group: &'b str, resource: &'b str, name: &'b str) -> Action<'b> {
        let on = Target::Resource {
            group,
            resource,
            subresource: "",
            namespace: "",
            name,
        };
        let verb = self.verb;
        Action { verb, on }
    }

    /// Users and groups were of the core group before there was one for authentication.
    fn users_group(&self) -> &'static str {
        match self.mode {
            Mode::Legacy => "",
            _ => AUTHENTICATION,
        }
    }

    fn ask(&self, action: Action<'_>) -> Result<(), Failure> {
        (self.confirm)(self.requestor, action)
    }

    fn refuse(&self, action: Action<'_>, reason: &str) -> Result<(), Failure> {
        Err(forbidden(self.requestor, action, reason))
    }

    fn name(&self, user: &str) -> Result<(), Failure> {
        let group = self.users_group();
        if let Some((namespace, name)) = service_account::split_user_name(user) {
            let on = Target::Resource {
                group,
                resource: "serviceaccounts",
                subresource: "",
                namespace,
                name,
            };
            let verb = self.verb;
            return self.ask(Action { verb, on });
        }
        let node = service_account::node_of_user_name(user);
        match (self.mode, node) {
            (Mode::Legacy, _) | (_, None) => self.ask(self.action(group, "users", user)),
            // Permission must hold for whichever node the account runs on.
            (Mode::AssociatedNode, Some(_)) => self.ask(self.action(group, "nodes", "*")),
            (_, Some(node)) => self.ask(self.action(group, "nodes", node)),
        }
    }

    fn uid(&self, uid: &str) -> Result<(), Failure> {
        match uid {
            "" => Ok(()),
            uid => self.ask(self.action(AUTHENTICATION, "uids", uid)),
        }
    }

    fn groups(&self, groups: &[String]) -> Result<(), Failure> {
        let action = |name| self.action(self.users_group(), "groups", name);
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return self.refuse(action(""), why);
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return self.refuse(action(MASTERS), why);
            }
            if groups.len() >= MANY && self.ask(action("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.ask(action(group)))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Failure> {
        let action = |key, value| Action {
            verb: self.verb,
            on: Target::Resource {
                group: AUTHENTICATION,
                resource: "userextras",
                subresource: key,
                namespace: "",
                name: value,
            },
        };
        let count: usize = extra.values().map(Vec::len).sum();
        if self.mode != Mode::Legacy {
            for (key, values) in extra {
                if let Err(why) = check_extra(key, values) {
                    return self.refuse(action("", ""), &why);
                }
            }
            if count >= MANY && self.ask(action("*", "*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.ask(action(key, value))?;
            }
        }
        Ok(())
    }
}

fn check_extra(key: &str, values: &[String]) -> Result<(), String> {
    if key.is_empty() {
        return Err("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let problems = path_problems(key);
    if !problems.is_empty() {
        let problems = summary(&problems);
        return Err(format!(
            "impersonating an invalid key in extra is not allowed: {problems}"
        ));
    }
    if key.chars().any(char::is_uppercase) {
        let key = quote(key);
        return Err(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    if values.iter().any(String::is_empty) {
        return Err("impersonating the empty string value in extra is not allowed".to_owned());
    }
    Ok(())
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
    if !host.split('.').all(service_account::is_subdomain) {
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

/// Keys may hold what header names cannot; what is not well escaped is taken as it is.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut parts = key.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let Some((code, rest)) = part.split_at_checked(2) else {
            return key.to_owned();
        };
        let hex = code.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u8::from_str_radix(code, 16) {
            Ok(byte) if hex => bytes.push(byte),
            _ => return key.to_owned(),
        }
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A user as Go's `%#v` writes it.
fn go_syntax(user: &User) -> String {
    let strings = |list: &[String]| {
        let quoted: Vec<String> = list.iter().map(|one| quote(one)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => strings(groups),
    };
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:{}", quote(key), strings(values)))
        .collect();
    let extra = match extra.as_slice() {
        [] => "map[string][]string(nil)".to_owned(),
        extra => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}
