package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrNoKey is what Open says of a secret that none of the keys sealed.
	ErrNoKey = errors.New("secret: none of the keys sealed this")
	// ErrSealed is what Open says of bytes that Seal never made, that were changed,
	// or that were sealed for another purpose or id.
	ErrSealed = errors.New("secret: not sealed here, or damaged")
)

const (
	sealV1    = 1 // AES-256-GCM, random nonce
	sealKeyID = 4 // bytes of the key's id
	sealHead  = 1 + sealKeyID
	// A key of its own per purpose, and for the id that shows which key it was.
	sealInfo   = "standmeet seal 1\x00"
	sealIDInfo = "standmeet seal key id 1"
)

// Seal encrypts a secret that must be read again with the first key: version,
// key id, nonce, cipher text. Only the same purpose and id open it, so that a
// sealed value that is moved to another row stays closed. Purposes are constants
// of the caller; id is the row's. The zero Keys panic.
func (k Keys) Seal(purpose, id string, plaintext []byte) []byte {
	key := k.keys[0]
	head := append([]byte{sealV1}, keyID(key)...)
	return append(head, sealer(key, purpose).Seal(nil, nil, plaintext, sealAAD(head, purpose, id))...)
}

// Open gives what Seal was given, with whichever key sealed it. The error is
// ErrNoKey or ErrSealed, and holds nothing secret.
func (k Keys) Open(purpose, id string, sealed []byte) ([]byte, error) {
	if len(sealed) < sealHead || sealed[0] != sealV1 {
		return nil, ErrSealed
	}
	head, err := sealed[:sealHead], ErrNoKey
	for _, key := range k.keys {
		// Two keys may share an id by chance, so a match isn't the end.
		if !slices.Equal(keyID(key), head[1:]) {
			continue
		}
		if plaintext, failed := sealer(key, purpose).Open(nil, nil, sealed[sealHead:], sealAAD(head, purpose, id)); failed == nil {
			return plaintext, nil
		}
		err = ErrSealed
	}
	return nil, err
}

// Current reports that the first key sealed it. What isn't current is to be
// sealed again before its key is taken away.
func (k Keys) Current(sealed []byte) bool {
	return len(k.keys) > 0 && len(sealed) >= sealHead && sealed[0] == sealV1 && slices.Equal(keyID(k.keys[0]), sealed[1:sealHead])
}

func keyID(key []byte) []byte { return expand(key, sealIDInfo, sealKeyID) }

func sealer(key []byte, purpose string) cipher.AEAD {
	block, err := aes.NewCipher(expand(key, sealInfo+purpose, 32))
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return aead
		}
	}
	panic(fmt.Sprintf("secret: AES-256-GCM: %v", err)) // a fixed key size can't fail
}

func expand(key []byte, info string, size int) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, info, size)
	if err != nil {
		panic(fmt.Sprintf("secret: HKDF: %v", err)) // a fixed size can't fail
	}
	return out
}

// sealAAD binds the head, the purpose and the id; the length keeps ("a", "bc")
// and ("ab", "c") apart.
func sealAAD(head []byte, purpose, id string) []byte {
	aad := binary.BigEndian.AppendUint32(slices.Clone(head), uint32(len(purpose)))
	return append(append(aad, purpose...), id...)
}
