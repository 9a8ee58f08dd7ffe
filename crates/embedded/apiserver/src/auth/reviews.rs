//! Questions about identities and permissions, asked by creating objects that are never stored.

use serde_json::{Map, Value, json};

use super::authenticate::authenticate_token;
use super::review_validation as validation;
use super::rules::{Action, Rule, Target};
use super::{Authority, User};
use crate::field::FieldError;
use crate::kinds::Lookup;
use crate::request::ResourcePath;
use crate::status::{StatusError, Subject};
use plimsoll_golang::time::show_seconds;

/// Who has more rules than fit is told so many bytes of them.
const RULES_BYTES: usize = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    Token,
    SelfSubject,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectAccess,
    SelfSubjectRules,
}

impl Review {
    /// Which one is created at this path.
    pub fn of(path: &ResourcePath) -> Option<Self> {
        Some(match (path.group.as_str(), path.resource.as_str()) {
            ("authentication.k8s.io", "tokenreviews") => Self::Token,
            ("authentication.k8s.io", "selfsubjectreviews") => Self::SelfSubject,
            ("authorization.k8s.io", "subjectaccessreviews") => Self::SubjectAccess,
            ("authorization.k8s.io", "localsubjectaccessreviews") => Self::LocalSubjectAccess,
            ("authorization.k8s.io", "selfsubjectaccessreviews") => Self::SelfSubjectAccess,
            ("authorization.k8s.io", "selfsubjectrulesreviews") => Self::SelfSubjectRules,
            _ => return None,
        })
    }

    /// The answer, given the question as it was decoded. `namespace` is that of the request's path.
    pub(super) fn answer(
        self,
        authority: &Authority,
        namespace: &str,
        mut object: Value,
        user: &User,
        world: &dyn Lookup,
    ) -> Result<Value, StatusError> {
        match self {
            Self::Token => answer_token(authority, object, world),
            Self::SelfSubject => {
                let now = (authority.clock)();
                Ok(json!({
                    "metadata": {"creationTimestamp": show_seconds(now)},
                    "status": {"userInfo": user_info(user)},
                }))
            }
            Self::SelfSubjectRules => answer_rules(authority, &object, user),
            Self::SelfSubjectAccess => {
                invalid(validation::self_subject_access(&object))?;
                complete(&mut object);
                Ok(answer_access(authority, object, user))
            }
            Self::SubjectAccess => {
                invalid(validation::subject_access(&object))?;
                complete(&mut object);
                let subject = subject_of(&object["spec"]);
                Ok(answer_access(authority, object, &subject))
            }
            Self::LocalSubjectAccess => {
                complete(&mut object);
                let own = &mut object["metadata"]["namespace"];
                match own.as_str() {
                    None | Some("") => *own = namespace.into(),
                    Some(own) if own != namespace => {
                        return Err(StatusError::bad_request(
                            "the namespace of the provided object does not match the namespace sent on the request",
                        ));
                    }
                    Some(_) => {}
                }
                invalid(validation::local_subject_access(&object))?;
                let subject = subject_of(&object["spec"]);
                Ok(answer_access(authority, object, &subject))
            }
        }
    }
}

/// Refusals of these reviews do not name their kind.
fn invalid(errors: Vec<FieldError>) -> Result<(), StatusError> {
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: "authorization.k8s.io",
        kind: "",
    };
    Err(StatusError::invalid(subject, "", &errors))
}

/// What a question may leave out. What it is, whoever writes the answer says.
fn complete(object: &mut Value) {
    for field in ["metadata", "spec"] {
        if !object[field].is_object() {
            object[field] = json!({});
        }
    }
}

fn answer_token(
    authority: &Authority,
    mut object: Value,
    world: &dyn Lookup,
) -> Result<Value, StatusError> {
    let token = text(&object["spec"]["token"]);
    if token.is_empty() {
        let why = "token is required for TokenReview in authentication";
        return Err(StatusError::bad_request(why));
    }
    complete(&mut object);
    let audiences = texts(&object["spec"]["audiences"]);
    let header = format!("Bearer {token}");
    let now = (authority.clock)();
    let found = authenticate_token(&authority.tokens, &header, &audiences, now, world);
    object["status"] = match found {
        Ok((user, audiences)) => json!({
            "authenticated": true, "user": user_info(&user), "audiences": audiences,
        }),
        Err(problem) => json!({"user": {}, "error": problem.review_text()}),
    };
    Ok(object)
}

fn answer_access(authority: &Authority, mut object: Value, user: &User) -> Value {
    let spec = &object["spec"];
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let field = |of: &Value, name: &str| text(&of[name]);
    let (group, kind) = (field(resource, "group"), field(resource, "resource"));
    let subresource = field(resource, "subresource");
    let (namespace, name) = (field(resource, "namespace"), field(resource, "name"));
    let (url, verb);
    let on = if resource.is_object() {
        verb = field(resource, "verb");
        Target::Resource {
            group: &group,
            resource: &kind,
            subresource: &subresource,
            namespace: &namespace,
            name: &name,
        }
    } else {
        (url, verb) = (field(path, "path"), field(path, "verb"));
        Target::Path(&url)
    };
    let verb = verb.as_str();
    let policy = authority.policy.policy();
    let decision = policy.decide(user, Action { verb, on });
    let mut status = json!({"allowed": decision.allowed()});
    for (field, text) in [
        ("reason", decision.reason()),
        ("evaluationError", validation::ignored_selectors(resource)),
    ] {
        if !text.is_empty() {
            status[field] = text.into();
        }
    }
    object["status"] = status;
    object
}

/// Everything that applies in a namespace, in the order in which it is found: what is bound in the cluster, then what
/// is bound there.
fn answer_rules(authority: &Authority, object: &Value, user: &User) -> Result<Value, StatusError> {
    let namespace = text(&object["spec"]["namespace"]);
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let policy = authority.policy.policy();
    let (roles, missing) = policy.rules_for(user, &namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let mut room = RULES_BYTES;
    let mut left_out = 0_usize;
    for rule in roles.into_iter().flatten() {
        room = room.saturating_sub(rule.size());
        if room == 0 {
            left_out += 1;
            continue;
        }
        if !rule.resources.is_empty() {
            resources.push(Rule {
                non_resource_urls: Vec::new(),
                ..rule.clone()
            });
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(Rule {
                verbs: rule.verbs.clone(),
                non_resource_urls: rule.non_resource_urls.clone(),
                ..Rule::default()
            });
        }
    }
    let mut status = json!({
        "resourceRules": resources,
        "nonResourceRules": paths,
        "incomplete": left_out > 0,
    });
    let mut problems = super::rbac::joined(&missing);
    if left_out > 0 {
        let separator = if problems.is_empty() { "" } else { "; " };
        problems = format!("{problems}{separator}and {left_out} more rules");
    }
    if !problems.is_empty() {
        status["evaluationError"] = problems.into();
    }
    // The question is not repeated.
    Ok(json!({"metadata": {}, "spec": {}, "status": status}))
}

/// Whom a review asks about.
fn subject_of(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(&spec["user"]),
        uid: text(&spec["uid"]),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values)))
            .collect(),
    }
}

/// A user as the API writes it, without what is empty.
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let mut tell = |field: &str, value: Value, empty: bool| {
        if !empty {
            info.insert(field.to_owned(), value);
        }
    };
    tell("username", json!(user.name), user.name.is_empty());
    tell("uid", json!(user.uid), user.uid.is_empty());
    tell("groups", json!(user.groups), user.groups.is_empty());
    tell("extra", json!(user.extra), user.extra.is_empty());
    info.into()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
