//! Network policies.

use serde_json::json;

use super::GROUP;
use crate::kinds::at::{At, Errors};
use crate::kinds::pod::probes;
use crate::kinds::rules::Rules;
use crate::kinds::{addresses, metadata, names, raise_generation};

pub(super) static NETWORK_POLICY: Rules = Rules {
    kind: "NetworkPolicy",
    prepare_create: |policy| policy["metadata"]["generation"] = json!(1),
    // Here, an empty list is another one than none.
    prepare_update: |new, old| {
        let changed = new["spec"] != old["spec"];
        raise_generation(new, changed);
    },
    warnings: |policy, _| {
        let spec = At::root(policy).get("spec");
        let rules = |rules, peers| {
            spec.get(rules)
                .items()
                .flat_map(move |rule| rule.get(peers).items())
        };
        rules("ingress", "from")
            .chain(rules("egress", "to"))
            .map(|peer| peer.get("ipBlock"))
            .flat_map(|block| std::iter::once(block.get("cidr")).chain(block.get("except").items()))
            .filter_map(|cidr| Some((cidr.path(), addresses::cidr_oddity(cidr.text())?)))
            .map(|(place, words)| format!("{place}: {words}"))
            .collect()
    },
    validate: network_policy,
    ..Rules::namespaced(GROUP)
};

pub(super) fn network_policy(policy: &At<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    metadata::selector(&spec.get("podSelector"), errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for port in rule.get("ports").items() {
                policy_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                policy_peer(&peer, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        errors.invalid(
            &types,
            types.value.clone(),
            "may not specify more than two policyTypes",
        );
        return;
    }
    for kind in types.items() {
        errors.optional_choice(&kind, &["Ingress", "Egress"]);
    }
}

pub(super) fn policy_port(at: &At<'_>, errors: &mut Errors) {
    errors.optional_choice(&at.get("protocol"), &["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.get("port"), at.get("endPort"));
    if !port.is_set() {
        if end.is_set() {
            errors.invalid(
                &end,
                end.number(),
                "may not be specified when `port` is not specified",
            );
        }
    } else if port.value.is_string() {
        if end.is_set() {
            errors.invalid(
                &end,
                end.number(),
                "may not be specified when `port` is non-numeric",
            );
        }
        probes::port(&port, errors);
    } else {
        probes::port(&port, errors);
        if end.is_set() {
            if end.number() < port.number() {
                errors.invalid(
                    &end,
                    port.number(),
                    "must be greater than or equal to `port`",
                );
            }
            errors.between(&end, 1, 65535);
        }
    }
}

pub(super) fn policy_peer(peer: &At<'_>, errors: &mut Errors) {
    let block = peer.get("ipBlock");
    let mut kinds = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if peer.get(selector).is_set() {
            kinds += 1;
            metadata::selector(&peer.get(selector), errors);
        }
    }
    if block.is_set() {
        kinds += 1;
        ip_block(&block, errors);
    }
    if kinds == 0 {
        errors.required(peer, "must specify a peer");
    } else if kinds > 1 && block.is_set() {
        errors.forbidden(peer, "may not specify both ipBlock and another peer");
    }
}

pub(super) fn ip_block(block: &At<'_>, errors: &mut Errors) {
    let cidr = block.get("cidr");
    if cidr.is_empty() {
        errors.required(&cidr, "");
        return;
    }
    errors.format(&cidr, names::cidr);
    let Some((network, bits)) = names::parse_cidr(cidr.text()) else {
        return;
    };
    for except in block.get("except").items() {
        errors.format(&except, names::cidr);
        let Some((inner, inner_bits)) = names::parse_cidr(except.text()) else {
            continue;
        };
        if bits >= inner_bits || !names::shares_prefix(network, inner, bits) {
            errors.invalid(&except, except.text(), "must be a strict subset of `cidr`");
        }
    }
}
