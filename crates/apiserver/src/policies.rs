//! Validating admission policies at work: rules in the Common Expression Language that new and changed objects must obey.

use std::collections::HashMap;

use cel::{Context, Value as Cel};
use http::StatusCode;
use serde_json::{Value, json};

use crate::auth::user_info;
use crate::expressions;
use crate::kinds::Lookup;
use crate::kinds::metadata::selects;
use crate::rest::{Call, meta};
use crate::status::Failure;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// Refuses what a policy denies; what one only warns about is said.
pub fn check(
    call: &Call<'_>,
    object: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
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

fn denied(call: &Call<'_>, object: &Value, named: &str, message: &str, reason: &str) -> Failure {
    let why = format!("{named} denied request: {message}");
    let subject = call.served.resource.as_subject();
    let mut refused = Failure::forbidden(subject, meta(object, "name"), &why);
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
    fn context(&self) -> Context<'static, 'static> {
        let mut context = plimsoll_expressions::context();
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
        for (name, value) in [
            ("object", named(self.object)),
            ("oldObject", self.old.map_or(Value::Null, named)),
            ("namespaceObject", self.namespace.clone()),
            ("request", request),
        ] {
            context.add_variable_from_value(name, cel_of(&value));
        }
        context
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

/// What to say of the first rule that does not hold, and for which reason; `None` where all do.
fn violation(policy: &Value, request: &Request<'_>) -> Option<(String, String)> {
    let mut context = request.context();
    let strict = policy["failurePolicy"] != "Ignore";
    let run = |source: &str, context: &Context<'_, '_>| -> Result<Cel, String> {
        let program = expressions::compile(source, &VARIABLES)?;
        program.evaluate(context).map_err(|error| error.to_string())
    };
    let items = |list: &str| policy[list].as_array().into_iter().flatten();
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    for condition in items("matchConditions") {
        if !matches!(
            run(&text(condition, "expression"), &context),
            Ok(Cel::Bool(true))
        ) {
            return None;
        }
    }
    let mut variables: HashMap<String, Cel> = HashMap::new();
    for variable in items("variables") {
        let Ok(value) = run(&text(variable, "expression"), &context) else {
            continue;
        };
        variables.insert(text(variable, "name"), value);
        context.add_variable_from_value("variables", variables.clone());
    }
    for validation in items("validations") {
        let expression = text(validation, "expression");
        let message = match run(&expression, &context) {
            Ok(Cel::Bool(true)) => continue,
            Ok(_) => {
                let computed = text(validation, "messageExpression");
                let computed = match run(&computed, &context) {
                    Ok(Cel::String(words)) if !computed.is_empty() => words.trim().to_owned(),
                    _ => String::new(),
                };
                [computed, text(validation, "message").trim().to_owned()]
                    .into_iter()
                    .find(|words| !words.is_empty())
                    .unwrap_or_else(|| format!("failed expression: {}", expression.trim()))
            }
            Err(_) if !strict => continue,
            Err(error) => {
                let words = format!("expression '{expression}' resulted in error: {error}");
                return Some((words, "Invalid".to_owned()));
            }
        };
        return Some((message, text(validation, "reason")));
    }
    None
}
