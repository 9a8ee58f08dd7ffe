//! Which requests are served before which others: schemas of flows, and levels of priority.

use super::at::{At, Errors};
use super::extensions::counted;
use super::names;
use super::rules::Rules;
use crate::field::{ErrorType, FieldError};

pub(super) static KINDS: &[&Rules] = &[&FLOW_SCHEMA, &PRIORITY_LEVEL];

const FLOW: &str = "flowcontrol.apiserver.k8s.io";
/// The schema and the level that nobody waits in.
const EXEMPT: &str = "exempt";
const VERBS: &str = "supported values: \"create\", \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"";

static FLOW_SCHEMA: Rules = Rules {
    validate: flow_schema,
    ..counted(FLOW, "FlowSchema", true)
};

fn flow_schema(schema: &At<'_>, errors: &mut Errors) {
    let spec = schema.get("spec");
    let precedence = spec.get("matchingPrecedence");
    let mut refuse = |detail: &str| errors.invalid(&precedence, precedence.number(), detail);
    if precedence.number() < 1 {
        refuse("must be a positive value");
    }
    if precedence.number() > 10_000 {
        refuse("must not be greater than 10000");
    }
    if precedence.number() == 1 && schema.dig(&["metadata", "name"]).text() != EXEMPT {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = spec.dig(&["distinguisherMethod", "type"]);
    const METHODS: [&str; 2] = ["ByNamespace", "ByUser"];
    if method.is_set() && !METHODS.contains(&method.text()) {
        errors.push(FieldError::with_shown(
            ErrorType::NotSupported,
            &method.path(),
            &format!("{{\"Type\":{}}}", method.value),
            "supported values: \"ByNamespace\", \"ByUser\"",
        ));
    }
    let level = spec.dig(&["priorityLevelConfiguration", "name"]);
    if level.is_empty() {
        errors.required(&level, "must reference a priority level");
    } else {
        errors.format(&level, names::subdomain);
    }
    for rule in spec.get("rules").items() {
        flow_rule(&rule, errors);
    }
}

fn flow_rule(rule: &At<'_>, errors: &mut Errors) {
    let subjects = rule.get("subjects");
    if subjects.is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for one in subjects.items() {
        subject(&one, errors);
    }
    let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(
            rule,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    for one in resources.items() {
        resource_rule(&one, errors);
    }
    for one in others.items() {
        verbs(&one.get("verbs"), errors);
        let urls = one.get("nonResourceURLs");
        if all_or_some(
            &urls,
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
            errors,
        ) {
            for url in urls.items() {
                non_resource_url(&url, errors);
            }
        }
    }
}

fn subject(subject: &At<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = subject.get("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        errors.not_supported(&kind, &["Group", "ServiceAccount", "User"]);
        return;
    };
    let named = subject.get(own);
    if named.is_set() {
        let name = named.get("name");
        errors.non_empty(&name);
        if *own == "serviceAccount" {
            service_account(&named, errors);
        }
    } else {
        let detail = format!("{own} is required when subject kind is '{}'", kind.text());
        errors.required(&named, &detail);
    }
    for (name, other) in KINDS.iter().filter(|(_, other)| other != own) {
        if subject.get(other).is_set() {
            let detail = format!("{other} is forbidden when subject kind is not '{name}'");
            errors.forbidden(&subject.get(other), detail);
        }
    }
}

fn service_account(account: &At<'_>, errors: &mut Errors) {
    let (name, namespace) = (account.get("name"), account.get("namespace"));
    if !name.is_empty() && name.text() != "*" {
        errors.format(&name, names::subdomain);
    }
    if namespace.is_empty() {
        errors.required(&namespace, "must specify namespace for service account");
    } else {
        errors.format(&namespace, names::label);
    }
}

fn resource_rule(rule: &At<'_>, errors: &mut Errors) {
    verbs(&rule.get("verbs"), errors);
    all_or_some(
        &rule.get("apiGroups"),
        "resource rules must supply at least one api group",
        "api groups",
        errors,
    );
    all_or_some(
        &rule.get("resources"),
        "resource rules must supply at least one resource",
        "resources",
        errors,
    );
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() {
        if !rule.get("clusterScope").flag() {
            errors.required(
                &namespaces,
                "resource rules that are not cluster scoped must supply at least one namespace",
            );
        }
        return;
    }
    if all_or_some(&namespaces, "", "namespaces", errors) {
        for namespace in namespaces.items() {
            for complaint in names::label(namespace.text()) {
                let detail = format!(
                    "each member of this list must be '*' or a DNS-1123 label; {complaint}"
                );
                errors.invalid(&namespace, namespace.text(), detail);
            }
        }
    }
}

fn verbs(at: &At<'_>, errors: &mut Errors) {
    if all_or_some(at, "verbs must contain at least one value", "verbs", errors)
        && at
            .texts()
            .any(|verb| !VERBS.contains(&format!("\"{verb}\"")))
    {
        let shown = at.value.to_string();
        let path = at.path();
        errors.push(FieldError::with_shown(
            ErrorType::NotSupported,
            &path,
            &shown,
            VERBS,
        ));
    }
}

/// A list is not empty, and has no more to say after `*`. Whether there is something left to check in it.
fn all_or_some(at: &At<'_>, missing: &str, what: &str, errors: &mut Errors) -> bool {
    if at.is_empty() {
        errors.required(at, missing);
        return false;
    }
    let all = at.texts().any(|one| one == "*");
    if all && at.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(at, at.value.clone(), detail);
    }
    !all
}

fn non_resource_url(url: &At<'_>, errors: &mut Errors) {
    let text = url.text();
    let detail = if text.is_empty() {
        "must not be empty"
    } else if text == "/" {
        return;
    } else if !text.starts_with('/') {
        "must start with slash"
    } else if text.contains(' ') {
        "must not contain white-space"
    } else if text.contains("//") {
        "must not contain double slash"
    } else if text.strip_suffix("/*").unwrap_or(text).contains('*') {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    errors.invalid(url, text, detail);
}

static PRIORITY_LEVEL: Rules = Rules {
    validate: |level, errors| {
        let spec = level.get("spec");
        let (kind, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
        let is_exempt = level.dig(&["metadata", "name"]).text() == EXEMPT;
        if (kind.text() == "Exempt") != is_exempt {
            errors.invalid(
                &kind,
                kind.text(),
                "must be 'Exempt' if and only if `name` is 'exempt'",
            );
        }
        match kind.text() {
            "Exempt" => {
                if limited.is_set() {
                    errors.forbidden(&limited, "must be nil if the type is not Limited");
                }
                shares(&exempt, errors);
            }
            "Limited" => {
                if exempt.is_set() {
                    errors.forbidden(&exempt, "must be nil if the type is Limited");
                }
                if limited.is_set() {
                    limits(&limited, errors);
                } else {
                    errors.required(&limited, "must not be empty when type is Limited");
                }
            }
            _ => errors.choice(&kind, &["Exempt", "Limited"]),
        }
    },
    ..counted(FLOW, "PriorityLevelConfiguration", true)
};

fn shares(level: &At<'_>, errors: &mut Errors) {
    let (shares, lent) = (
        level.get("nominalConcurrencyShares"),
        level.get("lendablePercent"),
    );
    if shares.number() < 0 {
        errors.invalid(&shares, shares.number(), "must be a non-negative integer");
    }
    if lent.is_set() {
        errors.between(&lent, 0, 100);
    }
}

fn limits(limited: &At<'_>, errors: &mut Errors) {
    let [shares, lent, borrowed] = [
        "nominalConcurrencyShares",
        "lendablePercent",
        "borrowingLimitPercent",
    ]
    .map(|name| limited.get(name));
    if shares.number() < 0 {
        errors.invalid(&shares, shares.number(), "must be a non-negative integer");
    }
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.text() {
        "Reject" if queuing.is_set() => errors.forbidden(
            &queuing,
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        "Queue" if !queuing.is_set() => errors.required(
            &queuing,
            "must not be empty if limited.limitResponse.type is Limited",
        ),
        "Queue" => queues(&queuing, errors),
        _ => errors.choice(&kind, &["Queue", "Reject"]),
    }
    if lent.is_set() {
        errors.between(&lent, 0, 100);
    }
    if borrowed.number() < 0 {
        errors.invalid(
            &borrowed,
            borrowed.number(),
            "if specified, must be a non-negative integer",
        );
    }
}

fn queues(queuing: &At<'_>, errors: &mut Errors) {
    let [length, queues, hand] =
        ["queueLengthLimit", "queues", "handSize"].map(|name| queuing.get(name));
    let not_positive = |at: &At<'_>, errors: &mut Errors| {
        if at.number() <= 0 {
            errors.invalid(at, at.number(), "must be positive");
        }
        at.number() <= 0
    };
    not_positive(&length, errors);
    if !not_positive(&queues, errors) && queues.number() > 10_000_000 {
        let detail = "must not be greater than 10000000";
        errors.invalid(&queues, queues.number(), detail);
    }
    if not_positive(&hand, errors) {
        return;
    }
    let (deck, size) = (queues.number(), hand.number());
    if size > deck {
        let detail = format!("should not be greater than queues ({deck})");
        errors.invalid(&hand, size, detail);
    } else if entropy(deck, size) > 60 {
        let detail = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than 60"
        );
        errors.invalid(&hand, size, detail);
    }
}

/// Bits that it takes to deal a hand from a deck.
fn entropy(deck: i64, hand: i64) -> u32 {
    let mut bits = 0.0;
    for left in (deck - hand + 1)..=deck {
        // Enough to know that it is too many.
        if bits > 64.0 {
            break;
        }
        bits += (left as f64).log2();
    }
    bits.ceil() as u32
}
