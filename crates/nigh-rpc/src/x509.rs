//! Names and validity of a certificate, to show to people; rustls decides whether a certificate is valid. Pure.

use std::net::IpAddr;

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
/// `[0]`: the version; `[3]`: the extensions (RFC 5280, 4.1).
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Subject alternative name, 2.5.29.17, and the kinds of names in it.
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;

/// The facts in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its URIs, which name the process.
    pub uris: Vec<String>,
    /// Host names.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Valid from.
    pub from: OffsetDateTime,
    /// Valid until.
    pub until: OffsetDateTime,
}

/// A part of a DER document: its tag and its contents.
type Part<'a> = (u8, &'a [u8]);

/// Takes the first part off `bytes`.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<Part<'a>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        _ if (0x81..=0x84).contains(&first) => {
            let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, contents))
}

fn take_of<'a>(bytes: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    take(bytes).filter(|(tag, _)| *tag == wanted).map(|(_, contents)| contents)
}

impl CertificateFacts {
    /// Parses a DER certificate; none if it is damaged.
    #[must_use]
    pub fn read(mut certificate: &[u8]) -> Option<Self> {
        let mut whole = take_of(&mut certificate, SEQUENCE)?;
        let mut signed = take_of(&mut whole, SEQUENCE)?;
        if signed.first() == Some(&VERSION) {
            take(&mut signed)?;
        }
        let (_, serial) = take(&mut signed)?;
        let (_algorithm, _issuer) = (take(&mut signed)?, take(&mut signed)?);
        let mut validity = take_of(&mut signed, SEQUENCE)?;
        let (from, until) = (moment(take(&mut validity)?)?, moment(take(&mut validity)?)?);
        let serial = serial.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut read = Self { uris: vec![], hosts: vec![], addresses: vec![], serial, from, until };
        while !signed.is_empty() {
            let (tag, mut contents) = take(&mut signed)?;
            if tag == EXTENSIONS {
                read.extensions(take_of(&mut contents, SEQUENCE)?)?;
            }
        }
        Some(read)
    }

    fn extensions(&mut self, mut all: &[u8]) -> Option<()> {
        while !all.is_empty() {
            let mut one = take_of(&mut all, SEQUENCE)?;
            if take_of(&mut one, OBJECT_ID)? != ALTERNATIVE_NAME {
                continue;
            }
            // Between the two may be a flag: whether the extension is critical.
            let mut contents = std::iter::from_fn(|| take(&mut one)).find(|(tag, _)| *tag == OCTETS)?.1;
            let mut names = take_of(&mut contents, SEQUENCE)?;
            while !names.is_empty() {
                let (tag, name) = take(&mut names)?;
                let text = || String::from_utf8_lossy(name).into_owned();
                match tag {
                    DNS_NAME => self.hosts.push(text()),
                    URI => self.uris.push(text()),
                    IP_ADDRESS => self.addresses.extend(address(name)),
                    _ => {}
                }
            }
        }
        Some(())
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// `YYMMDDHHMMSSZ`, or with all four digits of the year (RFC 5280, 4.1.2.5).
fn moment((tag, text): Part<'_>) -> Option<OffsetDateTime> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i32 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u8>().ok();
    let month = Month::try_from(two(0)?).ok()?;
    let date = Date::from_calendar_date(year, month, two(2)?).ok()?;
    let time = Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}
