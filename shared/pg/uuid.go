package pg

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidCodec moves a uuid.UUID as its 16 bytes. pgx on its own goes by way of
// database/sql's interfaces, that is through text, which for a statement of a
// few hundred ids costs more than the rest of it.
type uuidCodec struct{ pgtype.UUIDCodec }

func registerUUID(_ context.Context, c *pgx.Conn) error {
	m := c.TypeMap()
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	m.RegisterType(one)
	m.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
	return nil
}

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

func (uuidPlan) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID)
	if src == nil { // NULL
		*id = uuid.UUID{}
		return nil
	}
	if len(src) != len(id) {
		return fmt.Errorf("pg: a uuid of %d bytes", len(src))
	}
	copy(id[:], src)
	return nil
}
