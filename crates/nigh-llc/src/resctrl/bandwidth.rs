//! Memory bandwidth per class: a limit in a user's words, turned into the mount's unit, or refused with the reason.
//! Pure.
//!
//! Source: Documentation/filesystems/resctrl.rst, "Memory bandwidth Allocation and monitoring"; AMD64 Technology
//! Platform Quality of Service Extensions (values in 1/8 GB/s, 2048 unlimited).

use super::probe::{BandwidthInfo, BandwidthUnit};

/// AMD's value for no limit.
const AMD_UNLIMITED: u32 = 2048;
/// AMD's unit in bytes a second: 1/8 GB.
const AMD_UNIT: u64 = 125_000_000;
/// Bytes of one MiB.
const MEBIBYTE: u64 = 1 << 20;

/// A limit on a class's memory bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthLimit {
    /// None.
    Unlimited,
    /// Percent of the throttle's scale; Intel alone, and not under `mba_MBps`.
    Percent(u8),
    /// MiB a second; on AMD, or mounted with `mba_MBps`.
    MebibytesPerSecond(u32),
    /// A value in the mount's own unit, taken as it is or refused: never rounded.
    InOwnUnit(u32),
}

/// Why a limit cannot be set here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthRefusal {
    /// No control at all.
    #[error("this machine cannot limit memory bandwidth")]
    Absent,
    /// The scale is not linear, and the kernel takes no value.
    #[error("the throttle's scale is not linear, which the kernel does not support")]
    NotLinear,
    /// Percent where the unit is another.
    #[error("bandwidth is not given in percent here (hint: give it in MiB/s)")]
    NotPercent,
    /// MiB/s where only percent goes.
    #[error("bandwidth is given in percent here (hint: mount resctrl with -o mba_MBps for MiB/s)")]
    OnlyPercent,
    /// Outside what the hardware takes.
    #[error("{value} is outside {min} to {max} {unit}")]
    OutOfRange {
        /// In the mount's unit.
        value: u32,
        /// Least value.
        min: u32,
        /// Greatest value.
        max: u32,
        /// The unit.
        unit: BandwidthUnit,
    },
    /// Between two of the hardware's steps.
    #[error("{value} lies between the hardware's steps of {step} {unit}")]
    BetweenSteps {
        /// In the mount's unit.
        value: u32,
        /// The step.
        step: u32,
        /// The unit.
        unit: BandwidthUnit,
    },
}

impl BandwidthLimit {
    /// The value to write, in the mount's unit, rounded up to the hardware's step as the kernel would.
    pub fn value(self, info: Option<&BandwidthInfo>) -> Result<u32, BandwidthRefusal> {
        let info = info.ok_or(BandwidthRefusal::Absent)?;
        let unit = info.unit;
        let (value, max) = match (unit, self) {
            (BandwidthUnit::Percent, _) if !info.linear => return Err(BandwidthRefusal::NotLinear),
            (BandwidthUnit::Percent, Self::InOwnUnit(percent)) => (percent, 100),
            // The software controller takes any figure, but none at all would stop the class.
            (BandwidthUnit::MebibytesPerSecond, Self::InOwnUnit(0)) => {
                return Err(BandwidthRefusal::OutOfRange { value: 0, min: 1, max: u32::MAX, unit });
            }
            (BandwidthUnit::MebibytesPerSecond, Self::InOwnUnit(rate)) => return Ok(rate),
            (BandwidthUnit::EighthGigabytesPerSecond, Self::InOwnUnit(units)) => (units, AMD_UNLIMITED),
            (BandwidthUnit::Percent, Self::Unlimited) => (100, 100),
            (BandwidthUnit::Percent, Self::Percent(percent)) => (u32::from(percent), 100),
            (BandwidthUnit::Percent, Self::MebibytesPerSecond(_)) => return Err(BandwidthRefusal::OnlyPercent),
            (_, Self::Percent(_)) => return Err(BandwidthRefusal::NotPercent),
            // The software controller takes any figure, and checks neither range nor step.
            (BandwidthUnit::MebibytesPerSecond, Self::Unlimited) => return Ok(u32::MAX),
            (BandwidthUnit::MebibytesPerSecond, Self::MebibytesPerSecond(rate)) => return Ok(rate),
            (BandwidthUnit::EighthGigabytesPerSecond, Self::Unlimited) => (AMD_UNLIMITED, AMD_UNLIMITED),
            (BandwidthUnit::EighthGigabytesPerSecond, Self::MebibytesPerSecond(rate)) => {
                let units = (u64::from(rate) * MEBIBYTE).div_ceil(AMD_UNIT);
                (u32::try_from(units).unwrap_or(u32::MAX), AMD_UNLIMITED)
            }
        };
        if value < info.min || value > max {
            return Err(BandwidthRefusal::OutOfRange { value, min: info.min, max, unit });
        }
        if matches!(self, Self::InOwnUnit(_)) && !value.is_multiple_of(info.step) {
            return Err(BandwidthRefusal::BetweenSteps { value, step: info.step, unit });
        }
        Ok(value.div_ceil(info.step).saturating_mul(info.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(unit: BandwidthUnit, min: u32, step: u32) -> BandwidthInfo {
        BandwidthInfo { closids: 8, unit, min, step, linear: true, domains: Vec::new() }
    }

    #[test]
    fn a_limit_is_given_in_the_mounts_unit() {
        let percent = info(BandwidthUnit::Percent, 10, 10);
        assert_eq!(BandwidthLimit::Percent(41).value(Some(&percent)), Ok(50));
        assert_eq!(BandwidthLimit::Unlimited.value(Some(&percent)), Ok(100));
        let amd = info(BandwidthUnit::EighthGigabytesPerSecond, 0, 1);
        // 1000 MiB/s are 1.048576 GB/s, 8.39 eighths.
        assert_eq!(BandwidthLimit::MebibytesPerSecond(1000).value(Some(&amd)), Ok(9));
        assert_eq!(BandwidthLimit::Unlimited.value(Some(&amd)), Ok(2048));
        let software = info(BandwidthUnit::MebibytesPerSecond, 10, 10);
        assert_eq!(BandwidthLimit::MebibytesPerSecond(12_345).value(Some(&software)), Ok(12_345));
    }

    #[test]
    fn a_limit_that_cannot_be_set_says_why() {
        let percent = info(BandwidthUnit::Percent, 10, 10);
        let unit = BandwidthUnit::Percent;
        let low = BandwidthRefusal::OutOfRange { value: 5, min: 10, max: 100, unit };
        assert_eq!(BandwidthLimit::Percent(5).value(Some(&percent)), Err(low));
        assert_eq!(BandwidthLimit::MebibytesPerSecond(5).value(Some(&percent)), Err(BandwidthRefusal::OnlyPercent));
        let curved = BandwidthInfo { linear: false, ..percent };
        assert_eq!(BandwidthLimit::Percent(50).value(Some(&curved)), Err(BandwidthRefusal::NotLinear));
        let amd = info(BandwidthUnit::EighthGigabytesPerSecond, 0, 1);
        assert_eq!(BandwidthLimit::Percent(50).value(Some(&amd)), Err(BandwidthRefusal::NotPercent));
        assert_eq!(BandwidthLimit::Unlimited.value(None), Err(BandwidthRefusal::Absent));
    }

    #[test]
    fn a_value_in_the_mounts_own_unit_is_never_rounded() {
        let own = |value, info: &BandwidthInfo| BandwidthLimit::InOwnUnit(value).value(Some(info));
        let percent = info(BandwidthUnit::Percent, 10, 10);
        assert_eq!(own(40, &percent), Ok(40));
        assert_eq!(own(45, &percent).unwrap_err().to_string(), "45 lies between the hardware's steps of 10 percent");
        assert_eq!(own(110, &percent).unwrap_err().to_string(), "110 is outside 10 to 100 percent");
        let amd = info(BandwidthUnit::EighthGigabytesPerSecond, 0, 1);
        assert_eq!((own(16, &amd), own(2049, &amd).is_err()), (Ok(16), true));
        let software = info(BandwidthUnit::MebibytesPerSecond, 10, 10);
        assert_eq!((own(12_345, &software), own(0, &software).is_err()), (Ok(12_345), true));
    }
}
