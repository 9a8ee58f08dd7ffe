//! What a request means to authorization.

use http::Method;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldSelectorRequirement, LabelSelectorRequirement,
};
use plimsoll_apimachinery::request::{Query, RequestInfo};
use plimsoll_apimachinery::selector::{Operator, parse_fields, parse_labels};
use plimsoll_serving::auth::Access;

/// Resources with everything that narrows a request down, selectors included; anything else by its path.
pub fn access(method: &Method, info: &RequestInfo, query: &Query) -> Access {
    let Some(path) = &info.resource else {
        return Access::path(method, &info.path);
    };
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let lists = matches!(info.verb, "list" | "watch" | "deletecollection");
    Access::resource(ResourceAttributes {
        verb: filled(info.verb),
        group: filled(&path.group),
        version: filled(&path.version),
        namespace: filled(&path.namespace),
        resource: filled(&path.resource),
        subresource: filled(&path.subresource),
        name: filled(&path.name),
        field_selector: lists.then(|| fields(query)).flatten(),
        label_selector: lists.then(|| labels(query)).flatten(),
    })
}

/// One that makes no sense narrows nothing down; it is refused afterwards.
fn fields(query: &Query) -> Option<FieldSelectorAttributes> {
    let terms = parse_fields(query.get("fieldSelector")?).ok()?;
    let requirements: Vec<_> = terms
        .into_iter()
        // `=` alone says nothing, and a review of it would be refused.
        .filter(|term| !(term.field.is_empty() && term.value.is_empty()))
        .map(|term| FieldSelectorRequirement {
            key: term.field,
            operator: if term.equal { "In" } else { "NotIn" }.to_owned(),
            values: Some(vec![term.value]),
        })
        .collect();
    (!requirements.is_empty()).then_some(FieldSelectorAttributes {
        requirements: Some(requirements),
        ..FieldSelectorAttributes::default()
    })
}

fn labels(query: &Query) -> Option<LabelSelectorAttributes> {
    let requirements: Vec<_> = parse_labels(query.get("labelSelector")?)
        .ok()?
        .into_iter()
        .filter_map(|requirement| {
            let operator = match requirement.operator {
                Operator::Exists => "Exists",
                Operator::Absent => "DoesNotExist",
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                // Reviews have no words for these.
                Operator::Greater | Operator::Less => return None,
            };
            Some(LabelSelectorRequirement {
                key: requirement.key,
                operator: operator.to_owned(),
                values: (!requirement.values.is_empty()).then_some(requirement.values),
            })
        })
        .collect();
    (!requirements.is_empty()).then_some(LabelSelectorAttributes {
        requirements: Some(requirements),
        ..LabelSelectorAttributes::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(target: &str) -> serde_json::Value {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = Query::parse(query);
        let mut info = RequestInfo::new(&Method::GET, path, &query);
        info.narrow(&query);
        match access(&Method::GET, &info, &query) {
            Access::Resource(attributes) => serde_json::to_value(attributes).unwrap(),
            Access::Path(attributes) => serde_json::to_value(attributes).unwrap(),
        }
    }

    #[test]
    fn selectors_are_part_of_the_question() {
        let base = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods";
        assert_eq!(
            asked(&format!(
                "{base}?labelSelector=a%3Db,!c,d%3E5&fieldSelector=metadata.name%3Dp"
            )),
            serde_json::json!({
                "verb": "list", "group": "metrics.k8s.io", "version": "v1beta1", "namespace": "n",
                "resource": "pods", "name": "p",
                "fieldSelector": {"requirements": [
                    {"key": "metadata.name", "operator": "In", "values": ["p"]}]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "c", "operator": "DoesNotExist"}]},
            })
        );
        assert_eq!(
            asked(&format!("{base}/p?labelSelector=a%3Db"))["labelSelector"],
            serde_json::Value::Null
        );
        assert_eq!(
            asked(&format!("{base}?fieldSelector=%3D"))["fieldSelector"],
            serde_json::Value::Null
        );
        assert_eq!(
            asked("/metrics"),
            serde_json::json!({"path": "/metrics", "verb": "get"})
        );
    }
}
