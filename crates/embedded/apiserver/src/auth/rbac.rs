//! Role-based access control: who is bound to which rules, and what that allows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::aggregate::{self, ClusterRole};
use super::rules::{Action, Rule, Target};
use super::{User, service_account};
use crate::store::{Follower, News, Store};
use plimsoll_golang::strconv::quote;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// Roles and bindings at one point in time, arranged for being asked about.
#[derive(Debug, Default, Clone)]
pub struct Policy {
    cluster: Bindings,
    namespaces: FxHashMap<String, Bindings>,
    cluster_roles: FxHashMap<String, Arc<ClusterRole>>,
    /// The rules of those that gather others'.
    gathered: FxHashMap<String, Arc<[Rule]>>,
    roles: FxHashMap<(String, String), Arc<[Rule]>>,
}

/// The bindings of one scope by their names, and who appears in which.
#[derive(Debug, Default, Clone)]
struct Bindings {
    all: FxHashMap<Arc<str>, Arc<Binding>>,
    by_user: Members,
    by_group: Members,
}

/// The bindings of each, in the order of their names.
type Members = FxHashMap<String, BTreeMap<Arc<str>, Arc<Binding>>>;

#[derive(Debug)]
struct Binding {
    name: Arc<str>,
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// What a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRef {
    pub kind: String,
    pub name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RoleError {
    #[error("{kind}.rbac.authorization.k8s.io {} not found", quote(.name))]
    NotFound { kind: &'static str, name: String },
    #[error("unsupported role reference kind: {}", quote(.0))]
    Kind(String),
}

#[derive(Debug)]
pub enum Decision {
    /// `None`: a member of system:masters, who is not asked about.
    Allowed(Option<Grant>),
    /// Nothing allows it; the roles that could not be found might have.
    NoOpinion(Vec<RoleError>),
}

/// By which binding, and as which of its subjects, somebody is allowed something.
#[derive(Debug)]
pub struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

impl Decision {
    pub fn allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// As reviews and refusals tell it; may be empty.
    pub fn reason(&self) -> String {
        match self {
            Self::Allowed(None) => String::new(),
            Self::Allowed(Some(grant)) => format!("RBAC: allowed by {grant}"),
            Self::NoOpinion(missing) => match joined(missing) {
                problems if problems.is_empty() => problems,
                problems => format!("RBAC: {problems}"),
            },
        }
    }
}

/// So many problems are told.
const PROBLEMS: usize = 100;

/// Several problems in one line, each said once.
pub(super) fn joined(problems: &[RoleError]) -> String {
    let mut seen = FxHashSet::default();
    let mut said: Vec<String> = problems
        .iter()
        .filter(|problem| seen.insert(*problem))
        .take(PROBLEMS)
        .map(ToString::to_string)
        .collect();
    let all: FxHashSet<&RoleError> = problems.iter().collect();
    if all.len() > said.len() {
        said.push(format!("and {} more", all.len() - said.len()));
    }
    match said.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Each role's rules once, however often somebody is bound to it.
pub(super) fn without_repetitions(roles: Vec<&[Rule]>) -> Vec<&[Rule]> {
    let mut seen = FxHashSet::default();
    let roles = roles.into_iter();
    roles.filter(|rules| seen.insert(rules.as_ptr())).collect()
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding {
            name,
            namespace,
            role,
            subjects,
        } = &*self.binding;
        let (kind, name) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", name.to_string()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let subject = &subjects[self.subject];
        let who = match (subject.kind.as_str(), subject.namespace.as_str()) {
            ("ServiceAccount", "") => format!("{}/{namespace}", subject.name),
            ("ServiceAccount", own) => format!("{}/{own}", subject.name),
            _ => subject.name.clone(),
        };
        write!(
            f,
            "{kind} {} of {} {} to {} {}",
            quote(&name),
            role.kind,
            quote(&role.name),
            subject.kind,
            quote(&who)
        )
    }
}

/// The shelves that a policy is made of.
const SHELVES: [&str; 4] = [CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS];

impl Policy {
    fn apply(&mut self, news: &News) {
        let mut cluster_roles_changed = false;
        for item in &news.items {
            let (namespace, name) = item.key.rsplit_once('/').unwrap_or(("", &item.key));
            let object = item.object.as_ref().map(|object| object.value());
            match SHELVES[item.shelf] {
                CLUSTER_ROLES => {
                    cluster_roles_changed = true;
                    match object {
                        Some(object) => {
                            let role = Arc::new(ClusterRole::of(&object));
                            self.cluster_roles.insert(name.to_owned(), role);
                        }
                        None => drop(self.cluster_roles.remove(name)),
                    }
                }
                ROLES => {
                    let key = (namespace.to_owned(), name.to_owned());
                    match object {
                        Some(object) => {
                            self.roles.insert(key, Rule::all_of(&object).into());
                        }
                        None => drop(self.roles.remove(&key)),
                    }
                }
                CLUSTER_ROLE_BINDINGS => self.cluster.set(name, object.as_ref().map(Binding::of)),
                _ => {
                    let bindings = self.namespaces.entry(namespace.to_owned());
                    let bindings = bindings.or_default();
                    bindings.set(name, object.as_ref().map(Binding::of));
                    if bindings.all.is_empty() {
                        self.namespaces.remove(namespace);
                    }
                }
            }
        }
        if cluster_roles_changed {
            self.gathered = aggregate::gathered(&self.cluster_roles);
        }
    }

    /// The ClusterRoles that gather the rules of others, and what they gather.
    pub fn gathered(&self) -> &FxHashMap<String, Arc<[Rule]>> {
        &self.gathered
    }

    pub fn decide(&self, user: &User, action: Action<'_>) -> Decision {
        if user.in_group(super::MASTERS) {
            return Decision::Allowed(None);
        }
        let namespace = match action.on {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        };
        let mut missing = Vec::new();
        let mut seen = FxHashSet::default();
        for (binding, rules) in self.bound(user, namespace) {
            match rules {
                // What did not allow it through one binding does not through another.
                Ok(rules) if !seen.insert(rules.as_ptr()) => {}
                Ok(rules) if rules.iter().any(|rule| rule.allows(action)) => {
                    let subject = binding.subject_of(user).unwrap_or_default();
                    let binding = Arc::clone(binding);
                    return Decision::Allowed(Some(Grant { binding, subject }));
                }
                Ok(_) => {}
                Err(problem) => missing.push(problem),
            }
        }
        Decision::NoOpinion(missing)
    }

    /// The rules of all roles that apply to somebody in a namespace, and what could not be found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&[Rule]>, Vec<RoleError>) {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for (_, rules) in self.bound(user, namespace) {
            match rules {
                Ok(rules) => found.push(rules),
                Err(problem) => missing.push(problem),
            }
        }
        (found, missing)
    }

    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], RoleError> {
        let (kind, found) = match role.kind.as_str() {
            "ClusterRole" => {
                let own = self.cluster_roles.get(&role.name);
                let gathered = self.gathered.get(&role.name);
                ("clusterrole", gathered.or(own.map(|role| &role.rules)))
            }
            "Role" => {
                let key = (namespace.to_owned(), role.name.clone());
                ("role", self.roles.get(&key))
            }
            other => return Err(RoleError::Kind(other.to_owned())),
        };
        let name = role.name.clone();
        match found {
            Some(rules) => Ok(rules),
            None => Err(RoleError::NotFound { kind, name }),
        }
    }

    fn bound<'p>(
        &'p self,
        user: &User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'p Arc<Binding>, Result<&'p [Rule], RoleError>)> + use<'p> {
        let cluster = self.cluster.of(user);
        let local = self.namespaces.get(namespace);
        let local = local.map(|bindings| bindings.of(user));
        let all = cluster.chain(local.into_iter().flatten());
        all.map(|binding| {
            let rules = self.rules_of(&binding.role, &binding.namespace);
            (binding, rules)
        })
    }
}

impl Bindings {
    /// `None`: there is none of this name any more.
    fn set(&mut self, name: &str, binding: Option<Binding>) {
        if let Some(old) = self.all.remove(name) {
            self.index(&old, false);
        }
        if let Some(binding) = binding.map(Arc::new) {
            self.index(&binding, true);
            self.all.insert(binding.name.clone(), binding);
        }
    }

    /// Adds or removes a binding where its subjects are looked up.
    fn index(&mut self, binding: &Arc<Binding>, add: bool) {
        for subject in &binding.subjects {
            let (members, member) = match subject.kind.as_str() {
                "User" => (&mut self.by_user, subject.name.clone()),
                "Group" => (&mut self.by_group, subject.name.clone()),
                "ServiceAccount" => match subject.account_user(&binding.namespace) {
                    Some(user) => (&mut self.by_user, user),
                    None => continue,
                },
                _ => continue,
            };
            if add {
                let bindings = members.entry(member).or_default();
                bindings.insert(binding.name.clone(), binding.clone());
            } else if let Some(bindings) = members.get_mut(&member) {
                bindings.remove(&binding.name);
                if bindings.is_empty() {
                    members.remove(&member);
                }
            }
        }
    }

    fn of<'p>(&'p self, user: &User) -> impl Iterator<Item = &'p Arc<Binding>> + use<'p> {
        let by_user = self.by_user.get(&user.name).into_iter();
        let groups = user.groups.iter();
        let by_group = groups.filter_map(|group| self.by_group.get(group));
        let found: BTreeMap<&str, &Arc<Binding>> = by_user
            .chain(by_group)
            .flatten()
            .map(|(name, binding)| (name.as_ref(), binding))
            .collect();
        found.into_values()
    }
}

impl Binding {
    fn of(object: &Value) -> Self {
        let (namespace, name) = identity(object);
        let subjects = object["subjects"].as_array().into_iter().flatten();
        Self {
            name: name.into(),
            namespace,
            role: RoleRef::of(object),
            subjects: subjects
                .map(|subject| Subject {
                    kind: text(&subject["kind"]),
                    namespace: text(&subject["namespace"]),
                    name: text(&subject["name"]),
                })
                .collect(),
        }
    }

    fn subject_of(&self, user: &User) -> Option<usize> {
        let groups: FxHashSet<&str> = user.groups.iter().map(String::as_str).collect();
        self.subjects
            .iter()
            .position(|subject| match subject.kind.as_str() {
                "User" => subject.name == user.name,
                "Group" => groups.contains(subject.name.as_str()),
                "ServiceAccount" => {
                    subject.account_user(&self.namespace).as_ref() == Some(&user.name)
                }
                _ => false,
            })
    }
}

impl Subject {
    /// A service account without a namespace is of the binding's.
    fn account_user(&self, binding_namespace: &str) -> Option<String> {
        let namespace = match self.namespace.as_str() {
            "" => binding_namespace,
            own => own,
        };
        (!namespace.is_empty()).then(|| service_account::user_name(namespace, &self.name))
    }
}

impl RoleRef {
    pub fn of(binding: &Value) -> Self {
        let reference = &binding["roleRef"];
        Self {
            kind: text(&reference["kind"]),
            name: text(&reference["name"]),
        }
    }
}

fn identity(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    (text(&metadata["namespace"]), text(&metadata["name"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The policy of the moment. It follows the store, so whoever writes a role or a binding, and however, is heeded from
/// when readers see it.
#[derive(Debug)]
pub struct PolicyCache {
    follower: Follower,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The revision that the policy is of; `None`: nothing has been read.
    at: Option<u64>,
    policy: Arc<Policy>,
}

impl Known {
    fn as_of(&self, revision: u64) -> Option<Arc<Policy>> {
        let is_fresh = self.at.is_some_and(|at| at >= revision);
        is_fresh.then(|| self.policy.clone())
    }
}

impl PolicyCache {
    pub fn new(store: &Store) -> Self {
        Self {
            follower: store.follow(&SHELVES),
            known: RwLock::default(),
        }
    }

    pub fn policy(&self) -> Arc<Policy> {
        if let Some(policy) = self.known.read().as_of(self.follower.changed()) {
            return policy;
        }
        let mut known = self.known.write();
        // Whoever was here before may have read it all.
        if let Some(policy) = known.as_of(self.follower.changed()) {
            return policy;
        }
        let news = self.follower.news(known.at);
        if news.is_all {
            known.policy = Arc::default();
        }
        Arc::make_mut(&mut known.policy).apply(&news);
        known.at = Some(news.revision);
        known.policy.clone()
    }
}
