//! Pressure stall values (PSI).

use plimsoll_host::cgroup::Psi;

/// One ten-second average, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureFigure {
    pub resource: &'static str,
    pub degree: &'static str,
    pub value: f64,
}

/// The ten-second averages of one cgroup, some and full of each resource.
pub fn pressure_figures(cpu: &Psi, memory: &Psi, io: &Psi) -> [PressureFigure; 6] {
    let one = |resource, psi: &Psi| {
        [("some", psi.some), ("full", psi.full)].map(|(degree, pressure)| PressureFigure {
            resource,
            degree,
            value: pressure.avg10_centi as f64 / 100.0,
        })
    };
    let [a, b] = one("cpu", cpu);
    let [c, d] = one("mem", memory);
    let [e, f] = one("io", io);
    [a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_host::cgroup::Pressure;

    #[test]
    fn hundredths_become_percent() {
        let psi = |some, full| Psi {
            some: Pressure {
                avg10_centi: some,
                ..Pressure::default()
            },
            full: Pressure {
                avg10_centi: full,
                ..Pressure::default()
            },
            has_full: true,
        };
        let found = pressure_figures(&psi(1234, 100), &psi(2, 0), &psi(0, 50));
        let values = found.map(|figure| (figure.resource, figure.degree, figure.value));
        assert_eq!(
            values,
            [
                ("cpu", "some", 12.34),
                ("cpu", "full", 1.0),
                ("mem", "some", 0.02),
                ("mem", "full", 0.0),
                ("io", "some", 0.0),
                ("io", "full", 0.5),
            ]
        );
    }
}
