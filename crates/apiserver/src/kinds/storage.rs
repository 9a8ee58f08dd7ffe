//! Storage: claims, volumes, classes, drivers.

use super::at::{At, Errors};
use super::names;

pub fn csi_driver_name(driver: &At<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.required(driver, "");
        return;
    }
    if driver.len() > 63 {
        errors.too_long(driver, 63);
    }
    for complaint in names::subdomain(&driver.text().to_lowercase()) {
        errors.invalid(driver, driver.text(), complaint);
    }
}

pub fn claim_spec(_spec: &At<'_>, _errors: &mut Errors) {}
pub fn legacy_source(_name: &str, _at: &At<'_>, _errors: &mut Errors) {}
