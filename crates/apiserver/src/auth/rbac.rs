//! Role-based access control: who is bound to which rules, and what that allows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::rules::{Action, Rule, Target};
use super::{User, service_account};
use crate::field::quote;
use crate::kinds::Lookup;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// Roles and bindings at one point in time, arranged for being asked about.
#[derive(Debug, Default)]
pub struct Policy {
    cluster: Bindings,
    namespaces: FxHashMap<String, Bindings>,
    cluster_roles: FxHashMap<String, Arc<[Rule]>>,
    roles: FxHashMap<(String, String), Arc<[Rule]>>,
}

/// The bindings of one scope, in the order of their names, and who appears in which.
#[derive(Debug, Default)]
struct Bindings {
    all: Vec<Arc<Binding>>,
    by_user: FxHashMap<String, Vec<usize>>,
    by_group: FxHashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct Binding {
    name: String,
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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

/// Several problems in one line, each said once.
pub(super) fn joined(problems: &[RoleError]) -> String {
    let mut said: Vec<String> = Vec::new();
    for problem in problems {
        let text = problem.to_string();
        if !said.contains(&text) {
            said.push(text);
        }
    }
    match said.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
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
            "" => ("ClusterRoleBinding", name.clone()),
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

impl Policy {
    pub fn read(world: &dyn Lookup) -> Self {
        let mut policy = Self::default();
        for role in world.list(CLUSTER_ROLES, "") {
            let (_, name) = identity(&role);
            policy
                .cluster_roles
                .insert(name, Rule::all_of(&role).into());
        }
        for role in world.list(ROLES, "") {
            let rules = Rule::all_of(&role).into();
            policy.roles.insert(identity(&role), rules);
        }
        for binding in world.list(CLUSTER_ROLE_BINDINGS, "") {
            policy.cluster.add(Binding::of(&binding));
        }
        for binding in world.list(ROLE_BINDINGS, "") {
            let binding = Binding::of(&binding);
            let bindings = policy.namespaces.entry(binding.namespace.clone());
            bindings.or_default().add(binding);
        }
        policy
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
        for (binding, rules) in self.bound(user, namespace) {
            match rules {
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

    /// All rules that apply to somebody in a namespace, and what could not be found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Vec<RoleError>) {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for (_, rules) in self.bound(user, namespace) {
            match rules {
                Ok(rules) => found.extend(rules),
                Err(problem) => missing.push(problem),
            }
        }
        (found, missing)
    }

    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], RoleError> {
        let (kind, found) = match role.kind.as_str() {
            "ClusterRole" => ("clusterrole", self.cluster_roles.get(&role.name)),
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
    fn add(&mut self, binding: Binding) {
        let index = self.all.len();
        for subject in &binding.subjects {
            let (map, key) = match subject.kind.as_str() {
                "User" => (&mut self.by_user, subject.name.clone()),
                "Group" => (&mut self.by_group, subject.name.clone()),
                "ServiceAccount" => match subject.account_user(&binding.namespace) {
                    Some(user) => (&mut self.by_user, user),
                    None => continue,
                },
                _ => continue,
            };
            map.entry(key).or_default().push(index);
        }
        self.all.push(Arc::new(binding));
    }

    fn of<'p>(&'p self, user: &User) -> impl Iterator<Item = &'p Arc<Binding>> + use<'p> {
        let by_user = self.by_user.get(&user.name).into_iter();
        let groups = user.groups.iter();
        let by_group = groups.filter_map(|group| self.by_group.get(group));
        let mut found: Vec<usize> = by_user.chain(by_group).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(|index| &self.all[index])
    }
}

impl Binding {
    fn of(object: &Value) -> Self {
        let (namespace, name) = identity(object);
        let subjects = object["subjects"].as_array().into_iter().flatten();
        Self {
            name,
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
        self.subjects
            .iter()
            .position(|subject| match subject.kind.as_str() {
                "User" => subject.name == user.name,
                "Group" => user.in_group(&subject.name),
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

/// Keeps a policy until somebody says that roles or bindings have changed.
#[derive(Debug, Default)]
pub struct PolicyCache {
    generation: AtomicU64,
    kept: ArcSwapOption<Kept>,
}

#[derive(Debug)]
struct Kept {
    generation: u64,
    policy: Arc<Policy>,
}

impl PolicyCache {
    /// To be called after every write of a role or binding, before that write is acknowledged.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub fn policy(&self, world: &dyn Lookup) -> Arc<Policy> {
        // Taken before reading: what changes meanwhile makes the next caller read again.
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(kept) = &*self.kept.load()
            && kept.generation == generation
        {
            return Arc::clone(&kept.policy);
        }
        let policy = Arc::new(Policy::read(world));
        let kept = Kept {
            generation,
            policy: Arc::clone(&policy),
        };
        self.kept.store(Some(Arc::new(kept)));
        policy
    }
}
