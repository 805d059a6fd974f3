//! Decrypts chunks in place, by the AES-GCM that this library has for TLS anyway.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Why a unit did not open.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The key is not one of AES-256, or the unit has no room for IV and tag.
    Malformed,
    /// The tag does not fit the content, the key and the AAD.
    NotAuthentic,
}

/// Decrypts a unit (IV, content, tag) in place; returns the number of plain bytes, which begin behind the IV.
pub fn open_unit(key: &[u8], aad: &[u8], unit: &mut [u8]) -> Result<usize, Refused> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Refused::Malformed)?;
    let (iv, content) = unit.split_first_chunk_mut::<NONCE_LEN>().ok_or(Refused::Malformed)?;
    if content.len() < AES_256_GCM.tag_len() {
        return Err(Refused::Malformed);
    }
    let nonce = Nonce::assume_unique_for_key(*iv);
    let plain = LessSafeKey::new(key).open_in_place(nonce, Aad::from(aad), content);
    plain.map(|bytes| bytes.len()).map_err(|_| Refused::NotAuthentic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(plain: &[u8]) -> Vec<u8> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap());
        let mut content = plain.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key([1; NONCE_LEN]), Aad::from(b"aad"), &mut content)
            .unwrap();
        [&[1; NONCE_LEN], content.as_slice()].concat()
    }

    #[test]
    fn a_unit_opens_where_it_lies() {
        for size in [0, 1, 15, 16, 17, 1000, 100_000] {
            let plain = vec![5; size];
            let mut unit = sealed(&plain);
            assert_eq!(open_unit(&[7; 32], b"aad", &mut unit), Ok(size));
            assert_eq!(&unit[NONCE_LEN..NONCE_LEN + size], plain);
        }
    }

    #[test]
    fn any_bit_that_differs_is_refused() {
        let sound = sealed(b"some plain bytes");
        for bit in 0..8 * sound.len() {
            let mut unit = sound.clone();
            unit[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open_unit(&[7; 32], b"aad", &mut unit), Err(Refused::NotAuthentic), "bit {bit}");
        }
        assert_eq!(open_unit(&[8; 32], b"aad", &mut sound.clone()), Err(Refused::NotAuthentic));
        assert_eq!(open_unit(&[7; 32], b"aaa", &mut sound.clone()), Err(Refused::NotAuthentic));
    }

    #[test]
    fn what_is_no_unit_is_refused() {
        for size in [0, 1, 12, 27] {
            assert_eq!(open_unit(&[7; 32], b"", &mut vec![0; size]), Err(Refused::Malformed));
        }
        assert_eq!(open_unit(&[7; 16], b"", &mut vec![0; 40]), Err(Refused::Malformed));
    }
}
