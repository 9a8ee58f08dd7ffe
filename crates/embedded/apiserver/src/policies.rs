//! Validating admission policies at work: rules in the Common Expression Language that new and changed objects must obey.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use cel::Value as Cel;
use http::StatusCode;
use plimsoll_expressions::{Budget, Exhausted, Expression};
use serde_json::{Value, json};

use crate::auth::user_info;
use crate::expressions;
use crate::kinds::Lookup;
use crate::kinds::metadata::selects;
use crate::rest::{Call, meta};
use crate::status::StatusError;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// Refuses what a policy denies; what one only warns about is said.
pub fn check(
    call: &Call<'_>,
    object: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let bindings = call.server.list(BINDINGS, "");
    for binding in &bindings {
        let spec = &binding["spec"];
        let name = spec["policyName"].as_str().unwrap_or_default();
        let Some(policy) = call.server.get(POLICIES, "", name) else {
            continue;
        };
        let request = Request::of(call, object, old);
        // Parameters live in other objects, which this server does not follow.
        if !policy["spec"]["paramKind"].is_null()
            || !request.is_matched(&policy["spec"]["matchConstraints"])
            || !(spec["matchResources"].is_null() || request.is_matched(&spec["matchResources"]))
        {
            continue;
        }
        let Some((message, reason)) = violation(&policy["spec"], &request) else {
            continue;
        };
        let named = format!(
            "ValidatingAdmissionPolicy '{name}' with binding '{}'",
            meta(binding, "name")
        );
        let does = |action: &str| {
            let mut actions = spec["validationActions"].as_array().into_iter().flatten();
            actions.any(|one| one == action)
        };
        if does("Warn") {
            warnings.push(format!("Validation failed for {named}: {message}"));
        }
        if does("Deny") {
            return Err(denied(call, object, &named, &message, &reason));
        }
    }
    Ok(())
}

fn denied(
    call: &Call<'_>,
    object: &Value,
    named: &str,
    message: &str,
    reason: &str,
) -> StatusError {
    let why = format!("{named} denied request: {message}");
    let subject = call.served.resource.as_subject();
    let mut refused = StatusError::forbidden(subject, meta(object, "name"), &why);
    (refused.code, refused.reason) = match reason {
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    let causes = json!([{ "message": why }]);
    refused
        .details
        .get_or_insert_default()
        .insert("causes".into(), causes);
    refused
}

/// What policies see of a write.
struct Request<'a> {
    call: &'a Call<'a>,
    object: &'a Value,
    old: Option<&'a Value>,
    namespace: Value,
}

impl<'a> Request<'a> {
    fn of(call: &'a Call<'a>, object: &'a Value, old: Option<&'a Value>) -> Self {
        let namespace = &call.path.namespace;
        let namespace = call.server.get("namespaces", "", namespace);
        Self {
            call,
            object,
            old,
            namespace: namespace.unwrap_or_default(),
        }
    }

    fn operation(&self) -> &'static str {
        if self.old.is_some() {
            "UPDATE"
        } else {
            "CREATE"
        }
    }

    fn is_matched(&self, matching: &Value) -> bool {
        let picks = |selector: &str, labels: &Value| {
            let selector = &matching[selector];
            selector.is_null() || selects(selector, &labels["metadata"]["labels"]) != Some(false)
        };
        let by_rule = |list: &str| {
            let rules = matching[list].as_array();
            rules.map(|rules| rules.iter().any(|rule| self.is_in(rule)))
        };
        // A cluster's objects are in no namespace that could be told by its labels.
        (self.namespace.is_null() || picks("namespaceSelector", &self.namespace))
            && picks("objectSelector", self.object)
            && by_rule("resourceRules").unwrap_or(true)
            && !by_rule("excludeResourceRules").unwrap_or(false)
    }

    fn is_in(&self, rule: &Value) -> bool {
        let resource = &self.call.served.resource;
        let has = |list: &str, wanted: &str| {
            let mut items = rule[list].as_array().into_iter().flatten();
            items.any(|one| one == "*" || one == "*/*" || one == wanted)
        };
        let part = match self.call.path.subresource.as_str() {
            "" => resource.plural.clone(),
            part => format!("{}/{part}", resource.plural),
        };
        let names = rule["resourceNames"].as_array();
        has("apiGroups", &resource.group)
            && has("apiVersions", &resource.version)
            && has("operations", self.operation())
            && has("resources", &part)
            && names.is_none_or(|names| names.iter().any(|name| name == meta(self.object, "name")))
    }

    /// The variables that every expression knows.
    fn variables(&self) -> Vec<(&'static str, Cel)> {
        let resource = &self.call.served.resource;
        let named = |object: &Value| {
            let mut object = object.clone();
            self.call.say_what_it_is(&mut object);
            object
        };
        let user = self.call.user;
        let request = json!({
            "operation": self.operation(),
            "name": meta(self.object, "name"),
            "namespace": self.call.path.namespace,
            "subResource": self.call.path.subresource,
            "dryRun": self.call.query.get("dryRun").is_some(),
            "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "userInfo": user_info(user),
        });
        [
            ("object", named(self.object)),
            ("oldObject", self.old.map_or(Value::Null, named)),
            ("namespaceObject", self.namespace.clone()),
            ("request", request),
        ]
        .map(|(name, value)| (name, cel_of(&value)))
        .into()
    }
}

fn cel_of(value: &Value) -> Cel {
    cel::to_value(value).unwrap_or(Cel::Null)
}

/// What expressions may speak of.
const VARIABLES: [&str; 5] = [
    "object",
    "oldObject",
    "namespaceObject",
    "request",
    "variables",
];

/// What the conditions under which a policy is for an object may cost, and what its rules may.
const CONDITIONS_BUDGET: u64 = 2_500_000;
const BUDGET: u64 = 10_000_000;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// Longer messages are not used.
const MAX_MESSAGE: usize = 5 * 1024;

/// Runs a policy's expressions one after the other, until they have cost too much together.
struct Runner {
    variables: Vec<(&'static str, Cel)>,
    budget: Budget,
}

enum Trouble {
    Budget,
    Failed(String),
}

impl Runner {
    fn run(&mut self, source: &str) -> Result<Cel, Trouble> {
        let failed =
            |words| Trouble::Failed(format!("expression '{source}' resulted in error: {words}"));
        let program = compiled(source).map_err(failed)?;
        match self.budget.evaluate(&program, &self.variables) {
            Ok(found) => found.map_err(|failure| failed(failure.in_words())),
            Err(Exhausted) => Err(Trouble::Budget),
        }
    }

    /// Whether all conditions hold. What fails does not count where another condition does not hold.
    fn is_wanted(&mut self, conditions: &Value) -> Result<bool, String> {
        let mut failed = None;
        for condition in conditions.as_array().into_iter().flatten() {
            match self.run(text(condition, "expression")) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(Trouble::Budget) => return Err(OUT_OF_BUDGET.to_owned()),
                Err(Trouble::Failed(words)) => {
                    failed.get_or_insert(words);
                }
            }
        }
        failed.map_or(Ok(true), Err)
    }

    fn compute_variables(&mut self, list: &Value) {
        let mut known: HashMap<String, Cel> = HashMap::new();
        for variable in list.as_array().into_iter().flatten() {
            let Ok(value) = self.run(text(variable, "expression")) else {
                continue;
            };
            known.insert(text(variable, "name").to_owned(), value);
            self.variables.retain(|(name, _)| *name != "variables");
            self.variables.push(("variables", known.clone().into()));
        }
    }

    fn message(&mut self, validation: &Value) -> String {
        let computed = match self.run(text(validation, "messageExpression")) {
            Ok(Cel::String(words)) if words.len() <= MAX_MESSAGE => words.trim().to_owned(),
            _ => String::new(),
        };
        let computed = computed.as_str();
        let said = [computed, text(validation, "message").trim()];
        match said.into_iter().find(|words| !words.is_empty()) {
            Some(words) => words.to_owned(),
            None => format!(
                "failed expression: {}",
                text(validation, "expression").trim()
            ),
        }
    }
}

/// Policies are asked about every write, and it takes much longer to read an expression than to compute it.
fn compiled(source: &str) -> Result<Arc<Expression>, String> {
    /// More are forgotten all at once.
    const KNOWN: usize = 1_000;
    static CACHE: Mutex<BTreeMap<String, Arc<Expression>>> = Mutex::new(BTreeMap::new());
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = cache().get(source) {
        return Ok(Arc::clone(known));
    }
    let compiled = Arc::new(expressions::compile(source, &VARIABLES)?);
    let mut cache = cache();
    if cache.len() == KNOWN {
        cache.clear();
    }
    cache.insert(source.to_owned(), Arc::clone(&compiled));
    Ok(compiled)
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}

/// What to say of the first rule that does not hold, and for which reason; `None` where all do.
fn violation(policy: &Value, request: &Request<'_>) -> Option<(String, String)> {
    let strict = policy["failurePolicy"] != "Ignore";
    let failed = |words: String| strict.then(|| (words, "Invalid".to_owned()));
    let mut runner = Runner {
        variables: request.variables(),
        budget: Budget::new(CONDITIONS_BUDGET),
    };
    match runner.is_wanted(&policy["matchConditions"]) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(words) => return failed(words),
    }
    runner.budget = Budget::new(BUDGET);
    runner.compute_variables(&policy["variables"]);
    for validation in policy["validations"].as_array().into_iter().flatten() {
        match runner.run(text(validation, "expression")) {
            Ok(Cel::Bool(true)) => continue,
            Ok(_) => {
                let message = runner.message(validation);
                return Some((message, text(validation, "reason").to_owned()));
            }
            Err(Trouble::Budget) => return failed(OUT_OF_BUDGET.to_owned()),
            Err(Trouble::Failed(_)) if !strict => continue,
            Err(Trouble::Failed(words)) => return failed(words),
        }
    }
    None
}
